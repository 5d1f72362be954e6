//! The names of rings, as a cache gives them. Invariant: a name that was given back is never
//! another ring's, as whoever gets its place gets another generation.

/// One region of one service, for some types of op, as long as somebody uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingId {
    pub(super) index: u32,
    pub(super) generation: u32,
}
