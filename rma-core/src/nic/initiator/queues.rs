//! The outgoing op FIFOs and their arbiters (1RMA §4.3): which op enters service next.

use super::Initiator;
use crate::{
    command::CommandSlotId,
    nic::{gather::Bulk, solicitation_window::SolicitationWindow},
    op::{ClassOfService, Moves},
    time::Instant,
};

/// How many outgoing FIFOs there are.
pub(super) const FIFOS: usize = 4;

/// Which FIFO an op waits in whose data `moves` so. Each class has two: ops whose data comes in
/// need window, and wait for it without holding up the others.
//= 1rma#4.3-two-arbiters
//= type=deviation
pub(super) const fn fifo(class: ClassOfService, moves: Moves) -> usize {
    2 * class as usize + moves as usize
}

impl Initiator {
    /// About how many frames there are to send: ops with data to send, and those that could enter
    /// service now. 0 only if there is none.
    pub(in crate::nic) fn frames_waiting(&self, window: &SolicitationWindow) -> usize {
        let ops = |class| {
            let inbound =
                if window.admits_op() { self.waiting[fifo(class, Moves::In)].len() } else { 0 };
            inbound + self.waiting[fifo(class, Moves::Out)].len()
        };
        self.sending.len() + ClassOfService::ALL.into_iter().map(ops).sum::<usize>()
    }

    /// The requests of the throughput class that wait, if they are all that there is to send.
    pub(in crate::nic) fn bulk(&self, now: Instant) -> Option<Bulk> {
        let fifos = |class| Moves::ALL.map(|moves| &self.waiting[fifo(class, moves)]);
        if !self.sending.is_empty()
            || fifos(ClassOfService::Latency).iter().any(|fifo| !fifo.is_empty())
        {
            return None;
        }
        let bulk = fifos(ClassOfService::Throughput);
        let waited = |id: u16| now.nanos_since(self.slots[usize::from(id)].arrived_at);
        Some(Bulk {
            requests: bulk.iter().map(|fifo| fifo.len()).sum(),
            under_way: self.bulk_under_way,
            waited_nanos: bulk.iter().filter_map(|fifo| fifo.front()).map(waited).max()?,
            answered_nanos: now.nanos_since(self.bulk_answered_at?),
        })
    }

    /// Whether a read waits for the window.
    pub(in crate::nic) fn reads_wait(&self) -> bool {
        ClassOfService::ALL.into_iter().any(|it| !self.waiting[fifo(it, Moves::In)].is_empty())
    }

    /// The op of `class` that came first, of those that may enter service: a read needs window, a
    /// mutation does not, as its data goes out.
    fn ready(&self, class: ClassOfService, admits_read: bool) -> Option<CommandSlotId> {
        let head = |moves| self.waiting[fifo(class, moves)].front();
        let arrived_at = |id: u16| self.slots[usize::from(id)].arrived_at;
        let id = match (head(Moves::In).filter(|_| admits_read), head(Moves::Out)) {
            (Some(read), Some(mutation)) if arrived_at(mutation) < arrived_at(read) => mutation,
            (read, mutation) => read.or(mutation)?,
        };
        Some(CommandSlotId(id))
    }

    //= 1rma#4.3-two-arbiters
    /// The next op of the class whose turn it is; of the other, if that class has none that may
    /// enter service.
    pub(super) fn next_ready(&mut self, admits_read: bool) -> Option<CommandSlotId> {
        let (turn, other) = (self.first, self.first.other());
        if let Some(id) = self.ready(turn, admits_read) {
            self.first = other;
            return Some(id);
        }
        self.ready(other, admits_read)
    }

    /// How many ops of `class` have not entered service yet.
    pub(in crate::nic) fn ops_waiting(&self, class: ClassOfService) -> usize {
        Moves::ALL.map(|moves| self.waiting[fifo(class, moves)].len()).iter().sum()
    }
}
