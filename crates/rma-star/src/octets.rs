//! Big-endian integers out of arrays.

/// The `N` octets at `start`. Panics if they are not there: what reads fields reads them from
/// arrays as long as what they are fields of, so no octets that are received make it do so.
#[inline]
fn at<const N: usize, const LEN: usize>(octets: &[u8; LEN], start: usize) -> [u8; N] {
    *octets[start..].first_chunk().expect("field ranges lie inside the array by construction")
}

#[inline]
pub(crate) fn u16_at<const LEN: usize>(octets: &[u8; LEN], start: usize) -> u16 {
    u16::from_be_bytes(at(octets, start))
}

#[inline]
pub(crate) fn u32_at<const LEN: usize>(octets: &[u8; LEN], start: usize) -> u32 {
    u32::from_be_bytes(at(octets, start))
}

#[inline]
pub(crate) fn u64_at<const LEN: usize>(octets: &[u8; LEN], start: usize) -> u64 {
    u64::from_be_bytes(at(octets, start))
}
