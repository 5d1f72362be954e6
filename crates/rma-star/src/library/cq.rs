//! Completion queues: `struct ibv_cq`.
//!
//! Invariant: a place is reserved for each completion from when its work request is posted until it
//! is polled, so there is always room when a work request completes.

use super::wr::Wc;

/// Names a completion queue of one `Verbs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CqId(pub(super) u16);

/// One completion queue: a ring of fixed size.
#[derive(Debug)]
pub(super) struct Cq {
    wcs: Box<[Wc]>,
    first: u32,
    len: u32,
    /// Work requests that may complete into it.
    outstanding: u32,
}

impl Cq {
    pub(super) fn new(capacity: u32) -> Self {
        Self { wcs: vec![Wc::EMPTY; capacity as usize].into(), first: 0, len: 0, outstanding: 0 }
    }

    pub(super) const fn capacity(&self) -> u32 {
        self.wcs.len() as u32
    }

    /// How many completions it will have that it was not polled for: those that are there, and
    /// those of outstanding work requests.
    pub(super) const fn unpolled(&self) -> u32 {
        self.len + self.outstanding
    }

    /// Whether a completion more would have a place.
    pub(super) const fn has_room(&self) -> bool {
        self.unpolled() < self.capacity()
    }

    /// Reserves a place for the completion of one more work request.
    pub(super) fn reserve(&mut self) {
        debug_assert!(self.has_room(), "room was looked for");
        self.outstanding += 1;
    }

    /// Gives a completion, which a place was reserved for.
    pub(super) fn push(&mut self, wc: Wc) {
        debug_assert!(self.outstanding > 0, "a place was reserved");
        self.outstanding -= 1;
        let at = (u64::from(self.first) + u64::from(self.len)) % u64::from(self.capacity());
        self.wcs[at as usize] = wc;
        self.len += 1;
    }

    /// Moves completions out, first those that came first. Returns how many.
    pub(super) fn poll(&mut self, out: &mut [Wc]) -> usize {
        let count = out.len().min(self.len as usize);
        for wc in &mut out[..count] {
            *wc = self.wcs[self.first as usize];
            self.first = (self.first + 1) % self.capacity();
        }
        self.len -= count as u32;
        count
    }
}
