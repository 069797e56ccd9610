"""Arrays of a proof: read back as they are, refused where a file could run code, fill the memory, or is none of ours."""

from __future__ import annotations

import io
import pickle
import zipfile

import numpy as np
import pytest

from harness.errors import BundleError
from harness.store import Bundle, files
from tests.helpers import make_manifest


def make_bundle(tmp_path, data: bytes) -> Bundle:
    bundle = Bundle.create(tmp_path, make_manifest())
    (bundle.proofs / "x.npz").write_bytes(data)
    return bundle


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def npy_header(shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return stream.getvalue()


@pytest.mark.parametrize("name", ["proofs/x.npz", "x.npz"])
def test_arrays_come_back_by_name(tmp_path, name):
    arrays = make_bundle(tmp_path, npz(loss=np.float32([1.5]), weights=np.arange(6.0).reshape(2, 3))).load_proof(name)
    assert ["loss", "weights"] == sorted(arrays)
    np.testing.assert_array_equal(np.arange(6.0).reshape(2, 3), arrays["weights"])


def test_an_array_of_objects_is_refused(tmp_path):
    with pytest.raises(BundleError, match="damaged or hostile"):
        make_bundle(tmp_path, npz(x=np.array([{}], dtype=object))).load_proof("x.npz")


def test_a_pickle_is_refused(tmp_path):
    with pytest.raises(BundleError, match=r"no readable \.npz"):
        make_bundle(tmp_path, pickle.dumps([1])).load_proof("x.npz")


def test_what_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path):
    path = make_bundle(tmp_path, zipped({"x.npy": bytes(3 * 2**20)})).proofs / "x.npz"
    assert path.stat().st_size < 2**20
    with pytest.raises(BundleError, match=r"3\.0 MiB, more than the 2 MiB"):
        files.read_arrays(path, limit_bytes=2 * 2**20)


def test_a_header_that_claims_more_than_the_file_holds_is_refused(tmp_path):
    data = zipped({"x.npy": npy_header((10**15,)) + bytes(8)})
    with pytest.raises(BundleError, match=r"claims shape \(1000000000000000,\)"):
        make_bundle(tmp_path, data).load_proof("x.npz")


@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04", zipped({"x.npy": b"no array"}), npz(x=np.zeros(9))[:-30]], ids=["empty", "start", "text", "cut off"]
)
def test_a_file_that_holds_no_arrays_is_refused(tmp_path, data):
    with pytest.raises(BundleError, match=r"proofs/x\.npz is no readable"):
        make_bundle(tmp_path, data).load_proof("x.npz")


def test_a_missing_proof_is_named(tmp_path):
    with pytest.raises(BundleError, match=r"proofs/y\.npz is missing"):
        make_bundle(tmp_path, b"").load_proof("proofs/y.npz")


def test_a_proof_outside_the_bundle_is_refused(tmp_path):
    with pytest.raises(BundleError, match="relative"):
        make_bundle(tmp_path, b"").load_proof("../../x.npz")
