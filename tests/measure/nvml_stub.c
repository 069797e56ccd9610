/* A stand-in for NVIDIA's management library, for tests that go through the real Python binding. Environment variables decide what each call
 * returns; they are read at every call, so that a test may change them on the way.
 *
 *   NVML_STUB_CARDS=2                     how many cards there are (1 by default, at most 4)
 *   NVML_STUB_LOST=1                      these cards have fallen off the bus: every call about them returns 15
 *   NVML_STUB_<function>[_<card>]=3       that call returns this code, for all cards or one; <function> as below, without "nvml" and "_v2"
 *   NVML_STUB_<VALUE>[_<card>]=7          a value; <VALUE> as below; -1 is all bits set
 *   NVML_STUB_NAME_<card>=...             a card's name
 *   NVML_STUB_MIG_<card>=2                that card is in MIG mode, cut into so many slices (0 to 4)
 *   NVML_STUB_FALLS_OFF_<card>="0;1@60"   that card falls off the bus with the 60th question about it
 *
 * A code or a value may be a script over time. It is looked at whenever it is needed, and its looks are counted: "1980;345@20;1980@40" is 1980, from the
 * 20th look on 345, from the 40th on 1980 again. "100+7" grows by 7 from one look to the next; "100+7;0+7@30" wraps to 0 at the 30th. A script that a
 * test changes begins anew.
 *
 * Card 0 has the UUID GPU-00000000-..., slice 1 of card 0 has MIG-00000000-...-0001. Compiled with -DNO_MEMORY_V2 it lacks that one symbol, as the
 * libraries of old drivers do. Field by field the structures are those of nvml.h.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15, MAX_CARDS = 4, MAX_SLICES = 4 };

typedef struct device { int card, slice; } *Device; /* slice -1: the whole card */
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; unsigned long long usedGpuMemory; unsigned gpuInstanceId, computeInstanceId; } Process;
typedef struct { char busIdLegacy[16]; unsigned domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } PciInfo;
typedef union { double d; unsigned ui; unsigned long ul; unsigned long long ull; long long sll; int si; unsigned short us; } Value;
typedef struct { unsigned long long timeStamp; Value value; } Dated;
typedef struct { unsigned fieldId, scopeId; long long timestamp, latencyUsec; unsigned valueType, nvmlReturn; Value value; } Field;
typedef struct { unsigned metricId, nvmlReturn; double value; struct { char *shortName, *longName, *unit; } info; } Metric;
typedef struct gpm { int card, instance, looks; } *Look;
typedef struct { unsigned version, numMetrics; Look sample1, sample2; Metric metrics[]; } MetricsGet;
typedef struct { unsigned version, isSupportedDevice; } GpmSupport;
typedef struct { unsigned version, sensorType; int temperature; } Temperature;

static struct device cards[MAX_CARDS], slices[MAX_CARDS][MAX_SLICES];

static const char *setting(const char *name, int card)
{
    char variable[128];
    const char *found;
    if (card >= 0) {
        snprintf(variable, sizeof variable, "NVML_STUB_%s_%d", name, card);
        if ((found = getenv(variable)))
            return found;
    }
    snprintf(variable, sizeof variable, "NVML_STUB_%s", name);
    return getenv(variable);
}

/* Counts the looks at a script, the first being 1; one that was changed begins anew. Beyond the last place every look is the first. */
static unsigned long long looks_at(const char *name, int card, const char *script)
{
    static struct { char name[64], script[128]; int card; unsigned long long looks; } known[128];
    for (size_t place = 0; place < sizeof known / sizeof *known; place++) {
        if (!*known[place].name) {
            snprintf(known[place].name, sizeof known[place].name, "%s", name);
            known[place].card = card;
        }
        if (known[place].card != card || strcmp(known[place].name, name))
            continue;
        if (strcmp(known[place].script, script)) {
            snprintf(known[place].script, sizeof known[place].script, "%s", script);
            known[place].looks = 0;
        }
        return ++known[place].looks;
    }
    return 1;
}

static unsigned long long number(const char *name, int card, unsigned long long otherwise)
{
    const char *at = setting(name, card);
    if (!at || !*at)
        return otherwise;
    unsigned long long value = otherwise, looks = strpbrk(at + 1, ";@+") ? looks_at(name, card, at) : 1;
    while (at && *at) {
        char *rest;
        unsigned long long one = strtoull(at, &rest, 0), step = 0, from = 1;
        if (*rest == '+')
            step = strtoull(rest + 1, &rest, 0);
        if (*rest == '@')
            from = strtoull(rest + 1, &rest, 0);
        if (looks >= from)
            value = one + step * (looks - from);
        at = strchr(rest, ';');
        at = at ? at + 1 : NULL;
    }
    return value;
}

/* A value with a fraction, or none: "nan" and "inf" are read too. */
static double real(const char *name, int card, double otherwise)
{
    const char *found = setting(name, card);
    return found && *found ? strtod(found, NULL) : otherwise;
}

static int cards_there(void) { return (int)number("CARDS", -1, 1); }
static int slices_of(int card) { return (int)number("MIG", card, 0); }
static int in_mig_mode(int card) { return setting("MIG", card) != NULL; }

static int lost(int card)
{
    const char *names = getenv("NVML_STUB_LOST");
    return (names && strchr(names, '0' + card) != NULL) || number("FALLS_OFF", card, 0);
}

/* What a call returns before it does anything. */
static int code(const char *function, int card)
{
    if (card >= 0 && lost(card))
        return LOST;
    return (int)number(function, card, SUCCESS);
}

#define CARD_CALL(function) do { int c = code(function, device->card); if (c) return c; } while (0)
/* What the library refuses for a slice, although it would answer for the card. */
#define WHOLE_CARD_CALL(function) do { CARD_CALL(function); if (device->slice >= 0) return NOT_SUPPORTED; } while (0)
#define ONE_NUMBER(function, value, otherwise)                                                                                                            \
    int nvml##function(Device device, unsigned *told)                                                                                                     \
    {                                                                                                                                                     \
        WHOLE_CARD_CALL(#function);                                                                                                                       \
        *told = (unsigned)number(value, device->card, otherwise);                                                                                         \
        return SUCCESS;                                                                                                                                   \
    }

/* ---------------------------------------------------------------- the library and its cards */

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    for (int card = 0; card < MAX_CARDS; card++) {
        cards[card] = (struct device){card, -1};
        for (int slice = 0; slice < MAX_SLICES; slice++)
            slices[card][slice] = (struct device){card, slice};
    }
    return code("Init", -1);
}

int nvmlShutdown(void) { return code("Shutdown", -1); }
const char *nvmlErrorString(int error) { return error == 999 ? "Unknown Error" : "an error of the stub"; }

int nvmlSystemGetDriverVersion(char *told, unsigned length)
{
    int c = code("SystemGetDriverVersion", -1);
    if (!c)
        snprintf(told, length, "570.86.10");
    return c;
}

int nvmlSystemGetCudaDriverVersion_v2(int *told)
{
    *told = (int)number("CUDA", -1, 12080);
    return code("SystemGetCudaDriverVersion", -1);
}

int nvmlDeviceGetCount_v2(unsigned *told)
{
    *told = (unsigned)cards_there();
    return code("DeviceGetCount", -1);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device)
{
    if ((int)index >= cards_there())
        return INVALID;
    *device = &cards[index];
    return code("DeviceGetHandleByIndex", (int)index);
}

static void uuid_of(Device device, char *told, unsigned length)
{
    const char *own = setting("UUID", device->card);
    if (own)
        snprintf(told, length, "%s", own);
    else if (device->slice < 0)
        snprintf(told, length, "GPU-%08d-1111-2222-3333-444444444444", device->card);
    else
        snprintf(told, length, "MIG-%08d-1111-2222-3333-%012d", device->card, device->slice);
}

static void bus_of(Device device, char *told, unsigned length)
{
    const char *own = setting("BUS", device->card);
    if (own)
        snprintf(told, length, "%s", own);
    else
        snprintf(told, length, "00000000:%02X:00.0", 0x17 + device->card);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device)
{
    char own[96];
    int c = code("DeviceGetHandleByUUID", -1);
    if (c)
        return c;
    for (int card = 0; card < cards_there(); card++)
        for (int slice = -1; slice < slices_of(card); slice++) {
            *device = slice < 0 ? &cards[card] : &slices[card][slice];
            uuid_of(*device, own, sizeof own);
            if (!strcmp(own, uuid))
                return lost(card) ? LOST : SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, Device *device)
{
    char own[32];
    for (int card = 0; card < cards_there(); card++) {
        *device = &cards[card];
        bus_of(*device, own, sizeof own);
        if (!strcmp(own, bus))
            return code("DeviceGetHandleByPciBusId", card);
    }
    return NOT_FOUND;
}

int nvmlDeviceGetName(Device device, char *told, unsigned length)
{
    const char *name = setting("NAME", device->card);
    CARD_CALL("DeviceGetName");
    snprintf(told, length, "%s%s", name ? name : "NVIDIA H200", device->slice < 0 ? "" : " MIG 1g.18gb");
    return SUCCESS;
}

int nvmlDeviceGetUUID(Device device, char *told, unsigned length)
{
    CARD_CALL("DeviceGetUUID");
    uuid_of(device, told, length);
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(Device device, PciInfo *told)
{
    CARD_CALL("DeviceGetPciInfo");
    memset(told, 0, sizeof *told);
    told->bus = 0x17 + (unsigned)device->card;
    told->pciDeviceId = 0x233510DE;
    bus_of(device, told->busId, sizeof told->busId);
    return SUCCESS;
}

int nvmlDeviceGetVbiosVersion(Device device, char *told, unsigned length)
{
    CARD_CALL("DeviceGetVbiosVersion");
    snprintf(told, length, "96.00.BC.00.0%d", device->card);
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor)
{
    CARD_CALL("DeviceGetCudaComputeCapability");
    *major = (int)number("CAPABILITY_MAJOR", device->card, 9);
    *minor = (int)number("CAPABILITY_MINOR", device->card, 0);
    return SUCCESS;
}

int nvmlDeviceGetEccMode(Device device, unsigned *now, unsigned *pending)
{
    CARD_CALL("DeviceGetEccMode");
    *now = *pending = (unsigned)number("ECC", device->card, 1);
    return SUCCESS;
}

int nvmlDeviceGetComputeMode(Device device, unsigned *told)
{
    CARD_CALL("DeviceGetComputeMode");
    *told = (unsigned)number("COMPUTE_MODE", device->card, 0);
    return SUCCESS;
}

ONE_NUMBER(DeviceGetPowerManagementLimit, "POWER_LIMIT_MW", 700000)
ONE_NUMBER(DeviceGetNumGpuCores, "CUDA_CORES", 16896)

int nvmlDeviceGetMaxClockInfo(Device device, unsigned kind, unsigned *told)
{
    WHOLE_CARD_CALL("DeviceGetMaxClockInfo");
    if (kind != 1 && kind != 2)
        return INVALID;
    *told = (unsigned)(kind == 1 ? number("MAX_SM_CLOCK", device->card, 1985) : number("MAX_MEMORY_CLOCK", device->card, 3211));
    return SUCCESS;
}

/* ---------------------------------------------------------------- how cards hang together
 *
 * NVML_STUB_NVLINKS is the number of a card's NVLinks, NVLINKS_UP of those that are active, NVLINK_TO the card at their other end; without it, that is a
 * switch. NVLINK_STATE and NVLINK_KIND are told of each instead, as they stand. */

static unsigned links_of(int card) { return (unsigned)number("NVLINKS", card, 18); }
static int far_end(int card) { return (int)number("NVLINK_TO", card, ~0ULL); }

#define LINK_CALL(function) do { WHOLE_CARD_CALL(function); if (link >= links_of(device->card)) return INVALID; } while (0)

int nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *told)
{
    LINK_CALL("DeviceGetNvLinkState");
    *told = (unsigned)number("NVLINK_STATE", device->card, link < number("NVLINKS_UP", device->card, links_of(device->card)));
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, unsigned *told)
{
    LINK_CALL("DeviceGetNvLinkRemoteDeviceType");
    *told = (unsigned)number("NVLINK_KIND", device->card, far_end(device->card) < 0 ? 2 : 0);
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, PciInfo *told)
{
    LINK_CALL("DeviceGetNvLinkRemotePciInfo");
    memset(told, 0, sizeof *told);
    if (far_end(device->card) < 0)
        snprintf(told->busId, sizeof told->busId, "00000000:C4:00.0");
    else
        bus_of(&cards[far_end(device->card)], told->busId, sizeof told->busId);
    return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(Device device, Device other, unsigned *told)
{
    CARD_CALL("DeviceGetTopologyCommonAncestor");
    *told = (unsigned)number("ANCESTOR", device->card, 50);
    return code("DeviceGetTopologyCommonAncestor", other->card);
}

/* ---------------------------------------------------------------- MIG */

int nvmlDeviceGetMigMode(Device device, unsigned *now, unsigned *pending)
{
    CARD_CALL("DeviceGetMigMode");
    *now = *pending = (unsigned)number("MIG_MODE", device->card, (unsigned)in_mig_mode(device->card));
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *told)
{
    CARD_CALL("DeviceGetMaxMigDeviceCount");
    *told = (unsigned)number("MIG_SLOTS", device->card, 7);
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *slice)
{
    CARD_CALL("DeviceGetMigDeviceHandleByIndex");
    /* Slot 0 stays empty: slots are numbered by place, and places may be free. */
    if (index == 0 || (int)index > slices_of(device->card))
        return NOT_FOUND;
    *slice = &slices[device->card][index - 1];
    return SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device slice, Device *device)
{
    *device = &cards[slice->card];
    return code("DeviceGetDeviceHandleFromMigDeviceHandle", slice->card);
}

int nvmlDeviceGetGpuInstanceId(Device device, unsigned *told)
{
    *told = (unsigned)device->slice + 7;
    return device->slice < 0 ? NOT_SUPPORTED : code("DeviceGetGpuInstanceId", device->card);
}

/* ---------------------------------------------------------------- counters */

static unsigned long long share(Device device, unsigned long long whole) { return device->slice < 0 ? whole : whole / 8; }

int nvmlDeviceGetMemoryInfo(Device device, Memory *told)
{
    CARD_CALL("DeviceGetMemoryInfo");
    told->total = share(device, number("TOTAL_MIB", device->card, 143771) << 20);
    told->used = (number("USED_MIB", device->card, 1024) + number("RESERVED_MIB", device->card, 512)) << 20;
    told->free = told->total - told->used;
    return SUCCESS;
}

#ifndef NO_MEMORY_V2
int nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2 *told)
{
    CARD_CALL("DeviceGetMemoryInfo_v2");
    if (told->version != 0x02000028)
        return 25;
    told->total = share(device, number("TOTAL_MIB", device->card, 143771) << 20);
    told->reserved = number("RESERVED_MIB", device->card, 512) << 20;
    told->used = number("USED_MIB", device->card, 1024) << 20;
    told->free = told->total - told->used - told->reserved;
    return SUCCESS;
}
#endif

int nvmlDeviceGetUtilizationRates(Device device, Utilization *told)
{
    CARD_CALL("DeviceGetUtilizationRates");
    if (in_mig_mode(device->card))
        return NOT_SUPPORTED;
    told->gpu = (unsigned)number("BUSY", device->card, 87);
    told->memory = (unsigned)number("MEMORY_BUSY", device->card, 40);
    return SUCCESS;
}

ONE_NUMBER(DeviceGetPowerUsage, "POWER_MW", 412345)
ONE_NUMBER(DeviceGetCurrPcieLinkGeneration, "PCIE_GENERATION", 5)
ONE_NUMBER(DeviceGetCurrPcieLinkWidth, "PCIE_WIDTH", 16)

int nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long *told)
{
    WHOLE_CARD_CALL("DeviceGetTotalEnergyConsumption");
    *told = number("ENERGY_MJ", device->card, 9000000123ULL);
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(Device device, unsigned kind, unsigned *told)
{
    WHOLE_CARD_CALL("DeviceGetClockInfo");
    if (kind != 1 && kind != 2)
        return INVALID;
    *told = (unsigned)(kind == 1 ? number("SM_CLOCK", device->card, 1980) : number("MEMORY_CLOCK", device->card, 3201));
    return SUCCESS;
}

int nvmlDeviceGetDefaultApplicationsClock(Device device, unsigned kind, unsigned *told)
{
    WHOLE_CARD_CALL("DeviceGetDefaultApplicationsClock");
    *told = (unsigned)(kind == 1 ? number("DEFAULT_SM_CLOCK", device->card, 1900) : number("DEFAULT_MEMORY_CLOCK", device->card, 3201));
    return SUCCESS;
}

#ifndef NO_EVENT_REASONS
int nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long *told)
{
    WHOLE_CARD_CALL("DeviceGetCurrentClocksEventReasons");
    *told = number("THROTTLE", device->card, 0);
    return SUCCESS;
}
#endif

int nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *told)
{
    WHOLE_CARD_CALL("DeviceGetCurrentClocksThrottleReasons");
    *told = number("THROTTLE", device->card, 0);
    return SUCCESS;
}

int nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *told)
{
    WHOLE_CARD_CALL("DeviceGetTemperature");
    *told = (unsigned)number("TEMPERATURE", device->card, 61);
    return sensor ? INVALID : SUCCESS;
}

/* The name that newer drivers have for it. Unlike the older one it can tell a temperature below zero. */
int nvmlDeviceGetTemperatureV(Device device, Temperature *told)
{
    WHOLE_CARD_CALL("DeviceGetTemperatureV");
    if (told->version != 0x0100000C)
        return 25;
    told->temperature = (int)number("TEMPERATURE", device->card, 61);
    return told->sensorType ? INVALID : SUCCESS;
}

int nvmlDeviceGetPcieThroughput(Device device, unsigned counter, unsigned *told)
{
    WHOLE_CARD_CALL("DeviceGetPcieThroughput");
    *told = (unsigned)(counter == 0 ? number("PCIE_TX_KB", device->card, 2500) : number("PCIE_RX_KB", device->card, 125000));
    return SUCCESS;
}

/* NVML_STUB_PROCESSES_<card>="pid:bytes,pid:bytes"; bytes "none" is NVML's "not available", all bits set. */
int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, Process *told)
{
    const char *list = setting("PROCESSES", device->card);
    unsigned found = 0, room = *count;
    CARD_CALL("DeviceGetComputeRunningProcesses");
    for (const char *at = list; at && *at; found++) {
        char *rest;
        unsigned long pid = strtoul(at, &rest, 10);
        if (told && found < room) {
            told[found].pid = (unsigned)pid;
            told[found].usedGpuMemory = strncmp(rest, ":none", 5) ? strtoull(rest + 1, NULL, 10) : ~0ULL;
            told[found].gpuInstanceId = told[found].computeInstanceId = ~0U;
        }
        at = strchr(rest, ',');
        at = at ? at + 1 : NULL;
    }
    *count = found;
    return found > room || (found && !told) ? TOO_SMALL : SUCCESS;
}

int nvmlDeviceGetSamples(Device device, unsigned kind, unsigned long long since, unsigned *type, unsigned *count, Dated *told)
{
    unsigned long long gap_us = number("UPDATE_US", device->card, 200000);
    (void)since;
    CARD_CALL("DeviceGetSamples");
    if (kind != 1)
        return INVALID;
    *type = 1;
    *count = 8;
    for (int sample = 0; told && sample < 8; sample++) {
        told[sample].timeStamp = 1700000000000000ULL + (unsigned long long)sample * gap_us;
        told[sample].value.ui = 50;
    }
    return SUCCESS;
}

int nvmlDeviceGetFieldValues(Device device, int count, Field *fields)
{
    WHOLE_CARD_CALL("DeviceGetFieldValues");
    for (int field = 0; field < count; field++) {
        int speed = fields[field].fieldId == 90;
        fields[field].nvmlReturn = (unsigned)number("NVLINK_CODE", device->card, fields[field].scopeId == (speed ? 0 : 0xFFFFFFFFu) ? SUCCESS : INVALID);
        fields[field].valueType = (unsigned)number("NVLINK_TYPE", device->card, speed ? 1 : 3);
        if (speed)
            fields[field].value.ui = (unsigned)number("NVLINK_MB", device->card, 26562);
        else
            fields[field].value.ull = fields[field].fieldId == 138 ? number("NVLINK_TX_KIB", device->card, 3000) : number("NVLINK_RX_KIB", device->card, 5000);
    }
    return SUCCESS;
}

/* ---------------------------------------------------------------- performance monitoring */

int nvmlGpmQueryDeviceSupport(Device device, GpmSupport *told)
{
    CARD_CALL("GpmQueryDeviceSupport");
    told->isSupportedDevice = told->version == 1 && number("GPM", device->card, 1);
    return SUCCESS;
}

int nvmlGpmSampleAlloc(Look *told)
{
    *told = calloc(1, sizeof **told);
    return code("GpmSampleAlloc", -1);
}

int nvmlGpmSampleFree(Look look)
{
    free(look);
    return code("GpmSampleFree", -1);
}

static int looks;

int nvmlGpmSampleGet(Device device, Look look)
{
    CARD_CALL("GpmSampleGet");
    *look = (struct gpm){device->card, -1, ++looks};
    return SUCCESS;
}

int nvmlGpmMigSampleGet(Device device, unsigned instance, Look look)
{
    CARD_CALL("GpmMigSampleGet");
    *look = (struct gpm){device->card, (int)instance, ++looks};
    return SUCCESS;
}

int nvmlGpmMetricsGet(MetricsGet *told)
{
    int card = told->sample1->card;
    int c = code("GpmMetricsGet", card);
    if (c)
        return c;
    if (told->version != 1 || told->sample1->looks >= told->sample2->looks || told->sample2->card != card)
        return INVALID;
    for (unsigned metric = 0; metric < told->numMetrics; metric++) {
        Metric *one = &told->metrics[metric];
        one->nvmlReturn = SUCCESS;
        switch (one->metricId) {
        case 2: one->value = told->sample2->instance < 0 ? real("SM_ACTIVE", card, 73.0) : 31.0; break;
        case 5: one->value = real("TENSOR_ACTIVE", card, 25.5); one->nvmlReturn = (unsigned)number("TENSOR_CODE", card, SUCCESS); break;
        case 20: one->value = 2.0; break;
        case 21: one->value = 3.5; break;
        default: one->nvmlReturn = INVALID;
        }
    }
    return SUCCESS;
}
