//! Requests under old keys that were told so lately (not in the paper): whoever replays one gets no
//! second notice.
//!
//! An initiator sends a request once, so what comes twice is the network's copy or a recording, and
//! nobody loses by being told nothing. A request is known by 64 bits of its tag, which was found
//! right before: nobody can have another's taken for one that has come. The memory is fixed: each
//! request belongs into one set of eight places, and where these are taken, the one goes that was
//! told first. So who has some thousands of recordings gets some of them answered again, within the
//! rate.

use crate::{limits::TAG_LEN, time::Instant};

/// How many requests are remembered at most. More: more recordings are answered only once in a
/// timeout. Fewer: the less memory, 16 bytes each.
const PLACES: usize = 4096;

/// Places of a set. With one, two recordings that belong into the same place are answered in turns
/// without end, and of 256 recordings some do; with eight, of a thousand hardly any.
const WAYS: usize = 8;

pub(in crate::nic) struct ToldRequests {
    places: Box<[Told]>,
    timeout_nanos: u64,
}

#[derive(Clone, Copy)]
struct Told {
    tag: u64,
    at: Instant,
}

impl ToldRequests {
    /// How many requests are remembered at most.
    pub(in crate::nic) const PLACES: u32 = PLACES as u32;

    /// Bytes that each of them takes.
    pub(in crate::nic) const PLACE_LEN: usize = size_of::<Told>();

    pub(super) fn new(timeout_nanos: u64) -> Self {
        let nothing = Told { tag: 0, at: Instant::ZERO };
        Self { places: vec![nothing; PLACES].into_boxed_slice(), timeout_nanos }
    }

    /// Whether the request with `tag` was told less than a timeout ago.
    pub(super) fn has(&self, now: Instant, tag: &[u8; TAG_LEN]) -> bool {
        let (first, tag) = split(tag);
        let is_it = |it: &Told| it.tag == tag && now.nanos_since(it.at) < self.timeout_nanos;
        self.places[first..first + WAYS].iter().any(is_it)
    }

    /// The request with `tag` is told now.
    pub(super) fn note(&mut self, now: Instant, tag: &[u8; TAG_LEN]) {
        let (first, tag) = split(tag);
        let set = &mut self.places[first..first + WAYS];
        let own = set.iter().position(|it| it.tag == tag);
        let oldest = || (0..WAYS).min_by_key(|&way| set[way].at).unwrap_or_default();
        set[own.unwrap_or_else(oldest)] = Told { tag, at: now };
    }
}

/// Splits a tag into the start of its set and the bits that are remembered there: different bits of
/// the tag.
fn split(tag: &[u8; TAG_LEN]) -> (usize, u64) {
    let bits = u128::from_be_bytes(*tag);
    ((bits >> 64) as usize % (PLACES / WAYS) * WAYS, bits as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tag of a request that belongs into a set.
    fn tag(set: u8, request: u8) -> [u8; TAG_LEN] {
        core::array::from_fn(|at| if at < 8 { set * u8::from(at == 7) } else { request })
    }

    #[test]
    fn a_request_is_remembered_for_a_timeout_unless_eight_others_of_its_set_come() {
        let mut told = ToldRequests::new(100);
        let at = Instant::from_nanos;
        for request in 1..=8 {
            told.note(at(1000 + u64::from(request)), &tag(1, request));
            told.note(at(1000), &tag(2, request));
        }
        assert!((1..=8).all(|request| told.has(at(1008), &tag(1, request))));
        assert!(!told.has(at(1008), &tag(3, 1)) && !told.has(at(1008), &tag(1, 9)));
        // Told again: it is no longer the one that was told first.
        told.note(at(1009), &tag(1, 1));
        told.note(at(1010), &tag(1, 9));
        let known: Vec<u8> = (1..=9).filter(|&it| told.has(at(1010), &tag(1, it))).collect();
        assert_eq!(known, [1, 3, 4, 5, 6, 7, 8, 9]);
        assert!(told.has(at(1108), &tag(1, 1)) && !told.has(at(1109), &tag(1, 1)));
    }
}
