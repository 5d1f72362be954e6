//! The solicitation window (1RMA §4.1, §4.3): how many payload bytes may be inbound at once.
//!
//! In hardware it is an SRAM that lands inbound payloads; here it is its accounting. Invariant: the sizes
//! of all ops in service never exceed the window (P3).

use crate::limits::OP_SIZE_MAX;

#[derive(Debug)]
pub(super) struct SolicitationWindow {
    size: u32,
    free: u32,
    /// Who entered last.
    last: Solicitor,
    /// Whether both wait.
    contended: bool,
}

/// Who may wait for the window: this host's reads, and the mutations that others ask it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Solicitor {
    Read,
    Mutation,
}

impl SolicitationWindow {
    pub(super) const fn new(size: u32) -> Self {
        Self { size, free: size, last: Solicitor::Mutation, contended: false }
    }

    /// Whether an op may enter service: only when a whole op of the largest size is free, whatever its
    /// own size, so that small ops do not starve large ones.
    //= 1rma#3.1-window-admission
    pub(super) const fn admits_op(&self) -> bool {
        self.free >= OP_SIZE_MAX
    }

    /// Takes in who waits. To be called before the next [`SolicitationWindow::admits`], not after every change.
    pub(super) const fn note_waiting(&mut self, reads: bool, mutations: bool) {
        self.contended = reads && mutations;
    }

    /// Whether an op of `solicitor` may enter service. While the other one waits too they take turns, whatever
    /// the rhythm in which they ask.
    pub(super) fn admits(&self, solicitor: Solicitor) -> bool {
        self.admits_op() && !(self.contended && self.last == solicitor)
    }

    /// Takes an op's real size out of the window.
    //= 1rma#3.1-window-debit
    pub(super) fn debit(&mut self, solicitor: Solicitor, op_size: u32) {
        self.free = self.free.checked_sub(op_size).expect("`admits` was asked first");
        self.last = solicitor;
    }

    /// Gives back what an op took, when it completes in any way.
    //= 1rma#4.1-window-refund
    pub(super) fn refund(&mut self, op_size: u32) {
        self.free += op_size;
        assert!(self.free <= self.size, "an op is refunded once");
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
        window.refund(64);
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
        window.refund(100);
        assert_eq!(window.debited(), OP_SIZE_MAX);
    }

    #[test]
    fn the_two_who_wait_take_turns_and_one_alone_does_not_wait() {
        let mut window = SolicitationWindow::new(2 * OP_SIZE_MAX);
        for _ in 0..3 {
            window.note_waiting(true, true);
            assert!(window.admits(Solicitor::Read) && !window.admits(Solicitor::Mutation));
            window.debit(Solicitor::Read, 1);
            assert!(!window.admits(Solicitor::Read) && window.admits(Solicitor::Mutation));
            window.note_waiting(true, false);
            assert!(window.admits(Solicitor::Read));
            window.debit(Solicitor::Mutation, 1);
        }
    }

    #[test]
    #[should_panic(expected = "refunded once")]
    fn a_second_refund_is_a_broken_invariant() {
        SolicitationWindow::new(OP_SIZE_MAX).refund(1);
    }
}
