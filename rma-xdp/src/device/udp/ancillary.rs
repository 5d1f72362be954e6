//! The kernel's ancillary data beside a message: whether it came in fragments, and how long the
//! datagrams are that it is made of.

use std::ffi::c_int;

/// Bytes of a header: its length, the level and the type.
const HEADER_LEN: usize = size_of::<usize>() + 2 * size_of::<c_int>();

/// Room for what is told beside a message: each of the two is an integer behind a header. Aligned
/// as the header asks.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct Ancillary([u8; 64]);

/// The ancillary data of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Whether the kernel has put the message together from fragments. (An IPv6 datagram that is
    /// whole and has a fragment header nevertheless counts as one: RFC 6946.) GRO has no part in
    /// that: it leaves fragments alone.
    pub(super) is_reassembled: bool,
    /// How long each of its datagrams is but the last, if the message has several.
    pub(super) segment: Option<usize>,
}

impl Ancillary {
    pub(super) const EMPTY: Self = Self([0; 64]);

    /// Of as many bytes of it as the kernel wrote, and the flags of the message.
    pub(super) fn told(&self, written: usize, flags: c_int) -> Told {
        // Data that did not fit cannot be known, so it is taken for the worst.
        let mut told = Told { is_reassembled: flags & libc::MSG_CTRUNC != 0, ..Told::default() };
        let mut rest = self.0.get(..written).unwrap_or(&self.0);
        while let Some((level, kind, data, behind)) = first(rest) {
            rest = behind;
            match (level, kind) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let len = data.first_chunk().map_or(0, |bytes| c_int::from_ne_bytes(*bytes));
                    told.segment = usize::try_from(len).ok();
                }
                // Nothing else was asked for.
                _ => told.is_reassembled = true,
            }
        }
        told
    }
}

/// How long the datagrams of a run are, as the kernel is told beside it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct SegmentLen([u8; SEGMENT_LEN]);

/// A header and two bytes, up to where another thing could begin.
const SEGMENT_LEN: usize = (HEADER_LEN + 2).next_multiple_of(align_of::<usize>());

impl SegmentLen {
    pub(super) fn new(len: u16) -> Self {
        let mut bytes = [0; SEGMENT_LEN];
        let mut rest = &mut bytes[..];
        for field in [
            &(HEADER_LEN + size_of_val(&len)).to_ne_bytes()[..],
            &libc::SOL_UDP.to_ne_bytes(),
            &libc::UDP_SEGMENT.to_ne_bytes(),
            &len.to_ne_bytes(),
        ] {
            let (at, behind) = rest.split_at_mut(field.len());
            at.copy_from_slice(field);
            rest = behind;
        }
        Self(bytes)
    }
}

/// The first thing in `bytes`: its level, its type, its data, and what is behind it. `None` if
/// there is none, or if it is not whole: the kernel leaves out what does not fit.
fn first(bytes: &[u8]) -> Option<(c_int, c_int, &[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (level, rest) = rest.split_first_chunk()?;
    let (kind, _) = rest.split_first_chunk()?;
    let len = usize::from_ne_bytes(*len);
    let data = bytes.get(HEADER_LEN..len)?;
    // The next one is aligned as its length is; behind the last one there may be no room for that.
    let behind = bytes.get(len.next_multiple_of(align_of::<usize>())..).unwrap_or_default();
    Some((c_int::from_ne_bytes(*level), c_int::from_ne_bytes(*kind), data, behind))
}

const _: () = {
    assert!(
        HEADER_LEN == size_of::<libc::cmsghdr>() && HEADER_LEN.is_multiple_of(align_of::<usize>())
    );
    assert!(align_of::<Ancillary>() >= align_of::<libc::cmsghdr>());
    assert!(align_of::<SegmentLen>() >= align_of::<libc::cmsghdr>());
};

#[cfg(test)]
mod tests {
    use super::*;

    fn of(things: &[(c_int, c_int, c_int)]) -> (Ancillary, usize) {
        let mut bytes = Vec::new();
        for (level, kind, data) in things {
            let len = HEADER_LEN + size_of::<c_int>();
            bytes.extend(len.to_ne_bytes());
            for word in [level, kind, data] {
                bytes.extend(word.to_ne_bytes());
            }
            bytes.resize(bytes.len().next_multiple_of(align_of::<usize>()), 0);
        }
        let mut ancillary = Ancillary([0xff; 64]);
        ancillary.0[..bytes.len()].copy_from_slice(&bytes);
        (ancillary, bytes.len())
    }

    #[test]
    fn fragments_and_segments_are_told_apart_and_may_come_together() {
        let gro = (libc::SOL_UDP, libc::UDP_GRO, 1400);
        let fragments = (libc::IPPROTO_IP, 25, 1500);
        let told = |things: &[_], flags| {
            let (ancillary, len) = of(things);
            let Told { is_reassembled, segment } = ancillary.told(len, flags);
            (is_reassembled, segment)
        };
        assert_eq!(told(&[], 0), (false, None));
        assert_eq!(told(&[gro], 0), (false, Some(1400)));
        assert_eq!(told(&[fragments], 0), (true, None));
        assert_eq!(told(&[(libc::IPPROTO_IPV6, 77, 1500)], 0), (true, None));
        assert_eq!(told(&[gro, fragments], 0), (true, Some(1400)));
        assert_eq!(told(&[fragments, gro], 0), (true, Some(1400)));
        assert_eq!(told(&[gro], libc::MSG_CTRUNC), (true, Some(1400)));
        assert_eq!(told(&[(libc::SOL_UDP, libc::UDP_GRO, -1)], 0), (false, None));
    }

    #[test]
    fn no_length_that_is_told_is_believed_beyond_the_end() {
        let (mut ancillary, len) = of(&[(libc::IPPROTO_IP, 25, 1500)]);
        for claimed in [0, 1, HEADER_LEN - 1, len + 1, 64, 65, usize::MAX] {
            ancillary.0[..size_of::<usize>()].copy_from_slice(&claimed.to_ne_bytes());
            for written in 0..=len + 60 {
                ancillary.told(written, 0);
            }
        }
    }
}
