//! The solicitation window (1RMA §4.1, §4.3): how many payload bytes may be inbound at once.
//!
//! In hardware it is an SRAM that lands inbound payloads; here it is its accounting. Invariant: the
//! sizes of all ops in service never exceed the window (P3), and those of the mutations of others
//! never exceed their share of it (P13, not in the paper): as many of them as there may be, and
//! however long their data takes, the rest is there for this host's own reads alone. How the
//! tenants of a host share what is for reads, `initiator` decides.

use crate::limits::OP_SIZE_MAX;

#[derive(Debug)]
pub(super) struct SolicitationWindow {
    size: u32,
    free: u32,
    /// The bytes that mutations have of the window, and the most that they may have.
    mutations: u32,
    mutations_max: u32,
    /// The one of the two that entered last.
    last: Solicitor,
    /// Whether both wait.
    contended: bool,
}

/// Those that may wait for the window: this host's reads, and the mutations that others ask it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Solicitor {
    Read,
    Mutation,
}

/// The invariant by which no refund is larger than what was taken.
const ONCE: &str = "an op is refunded once";

impl Solicitor {
    const fn other(self) -> Self {
        match self {
            Self::Read => Self::Mutation,
            Self::Mutation => Self::Read,
        }
    }
}

impl SolicitationWindow {
    pub(super) const fn new(size: u32) -> Self {
        let (last, mutations_max) = (Solicitor::Mutation, Self::mutations_max(size));
        Self { size, free: size, mutations: 0, mutations_max, last, contended: false }
    }

    /// How much of a window of `size` bytes the mutations of others may have: half, and room for
    /// one op. Larger: less is left for this host's reads where no data comes for mutations.
    /// Smaller: mutations that come fast have less goodput. Reads may have all of the window: what
    /// does not come for them this host has asked for itself.
    pub(super) const fn mutations_max(size: u32) -> u32 {
        let half = size / 2;
        if half > OP_SIZE_MAX { half } else { OP_SIZE_MAX }
    }

    /// How much of a window of `size` bytes reads may have where this host has several tenants:
    /// half, as reads of one tenant into nowhere would leave nothing for what is written to the
    /// others, and room for one op.
    pub(super) const fn shared_reads_max(size: u32) -> u32 {
        Self::mutations_max(size)
    }

    /// Whether an op may enter service: only when a whole op of the largest size is free, whatever
    /// its own size, so that small ops do not starve large ones.
    //= 1rma#3.1-window-admission
    pub(super) const fn admits_op(&self) -> bool {
        self.free >= OP_SIZE_MAX
    }

    /// Whether an op of `solicitor` has room, no matter whose turn it is.
    pub(super) const fn has_room(&self, solicitor: Solicitor) -> bool {
        let has_share = match solicitor {
            Solicitor::Read => true,
            Solicitor::Mutation => self.mutations_max - self.mutations >= OP_SIZE_MAX,
        };
        has_share && self.admits_op()
    }

    /// Takes in whether reads and mutations both wait for nothing but the window. To be called
    /// before the next [`SolicitationWindow::admits`], not after every change.
    pub(super) const fn note_contended(&mut self, both_wait: bool) {
        self.contended = both_wait;
    }

    /// Whether an op of `solicitor` may enter service. While the other one waits too they take
    /// turns, whatever the rhythm in which they ask; nobody waits for another that has no room
    /// itself.
    pub(super) fn admits(&self, solicitor: Solicitor) -> bool {
        self.has_room(solicitor)
            && !(self.contended && self.last == solicitor && self.has_room(solicitor.other()))
    }

    /// Takes an op's real size out of the window.
    //= 1rma#3.1-window-debit
    pub(super) fn debit(&mut self, solicitor: Solicitor, op_size: u32) {
        self.free = self.free.checked_sub(op_size).expect("`admits` was asked first");
        if solicitor == Solicitor::Mutation {
            self.mutations += op_size;
        }
        self.last = solicitor;
    }

    /// Gives back what an op took, when it completes in any way, or is parked.
    //= 1rma#4.1-window-refund
    pub(super) fn refund(&mut self, solicitor: Solicitor, op_size: u32) {
        self.free += op_size;
        if solicitor == Solicitor::Mutation {
            self.mutations = self.mutations.checked_sub(op_size).expect(ONCE);
        }
        assert!(self.free <= self.size, "{ONCE}");
    }

    /// Bytes that are debited at present.
    pub(super) const fn debited(&self) -> u32 {
        self.size - self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= 1rma#3.1-window-admission
    //= type=test
    #[test]
    fn a_small_op_waits_for_a_whole_op_of_window() {
        let mut window = SolicitationWindow::new(OP_SIZE_MAX + 63);
        assert!(window.admits_op());
        window.debit(Solicitor::Read, 64);
        assert!(!window.admits_op(), "4095 bytes are free and the next op may be small");
        window.refund(Solicitor::Read, 64);
        assert!(window.admits_op());
    }

    //= 1rma#3.1-window-debit
    //= type=test
    //= 1rma#4.1-window-refund
    //= type=test
    #[test]
    fn an_op_takes_its_real_size_and_gives_it_back() {
        let mut window = SolicitationWindow::new(2 * OP_SIZE_MAX);
        window.debit(Solicitor::Read, 100);
        assert_eq!(window.debited(), 100);
        window.debit(Solicitor::Mutation, OP_SIZE_MAX);
        window.refund(Solicitor::Read, 100);
        assert_eq!(window.debited(), OP_SIZE_MAX);
    }

    #[test]
    fn half_of_the_window_is_for_own_reads_alone_and_reads_may_have_all() {
        let admitted = |solicitor, size| {
            let mut window = SolicitationWindow::new(size);
            let mut count = 0;
            while window.admits(solicitor) {
                window.debit(solicitor, OP_SIZE_MAX);
                count += 1;
            }
            (count, window)
        };
        for (size, reads, mutations) in
            [(4096, 1, 1), (8191, 1, 1), (16 << 10, 4, 2), (256 << 10, 64, 32)]
        {
            assert_eq!(admitted(Solicitor::Read, size).0, reads);
            let (count, mut window) = admitted(Solicitor::Mutation, size);
            assert_eq!(count, mutations);
            // Small ones count by their bytes, and need room for a whole op as well.
            window.refund(Solicitor::Mutation, OP_SIZE_MAX);
            window.debit(Solicitor::Mutation, 1);
            assert!(!window.admits(Solicitor::Mutation));
        }
    }

    #[test]
    fn a_read_does_not_wait_for_mutations_that_have_no_room() {
        let mut window = SolicitationWindow::new(4 * OP_SIZE_MAX);
        window.debit(Solicitor::Mutation, OP_SIZE_MAX);
        window.debit(Solicitor::Mutation, OP_SIZE_MAX);
        for _ in 0..2 {
            window.note_contended(true);
            assert!(window.admits(Solicitor::Read) && !window.admits(Solicitor::Mutation));
            window.debit(Solicitor::Read, OP_SIZE_MAX);
        }
        assert!(!window.has_room(Solicitor::Read));
    }

    #[test]
    fn the_two_who_wait_take_turns_and_one_alone_does_not_wait() {
        let mut window = SolicitationWindow::new(4 * OP_SIZE_MAX);
        for _ in 0..3 {
            window.note_contended(true);
            assert!(window.admits(Solicitor::Read) && !window.admits(Solicitor::Mutation));
            window.debit(Solicitor::Read, 1);
            assert!(!window.admits(Solicitor::Read) && window.admits(Solicitor::Mutation));
            window.note_contended(false);
            assert!(window.admits(Solicitor::Read));
            window.debit(Solicitor::Mutation, 1);
        }
    }

    #[test]
    #[should_panic(expected = "refunded once")]
    fn a_second_refund_is_a_broken_invariant() {
        SolicitationWindow::new(OP_SIZE_MAX).refund(Solicitor::Read, 1);
    }
}
