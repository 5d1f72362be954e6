//! The outgoing op FIFOs and their arbiters (1RMA §4.3): which op enters service next.

use super::{
    Initiator,
    slots::{Slot, SlotIndex, State},
};
use crate::{
    index_list::{IndexList, Links},
    limits::OP_SIZE_MAX,
    nic::{gather::Bulk, solicitation_window::SolicitationWindow},
    op::{ClassOfService, Moves},
    tenant::TenantIndex,
    time::Instant,
};

/// How many outgoing FIFOs there are.
pub(super) const FIFOS: usize = 4;

/// Returns the FIFO of an op whose data `moves` so. Each class has two: ops whose data comes in
/// need window, and wait for it without holding up the others.
//= 1rma#4.3-two-arbiters
//= type=deviation
pub(super) const fn fifo(class: ClassOfService, moves: Moves) -> usize {
    2 * class as usize + moves as usize
}

/// Reads that came while this host had several tenants: each waits for its tenant's share of the
/// window, and holds up no other tenant's. A host of one tenant has none of them.
pub(super) struct Held {
    classes: [Reads; 2],
    len: usize,
}

impl Held {
    pub(super) const fn new() -> Self {
        Self { classes: [const { Reads::EMPTY }; 2], len: 0 }
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Takes a read of such a slot out: it ends.
    #[cold]
    pub(super) fn remove(&mut self, links: &mut Links, slot: &Slot, id: SlotIndex) {
        self.len -= 1;
        self.classes[slot.command.class as usize].remove(links, slot.tenant, id.0);
    }

    /// Takes a read of such a slot out: it enters service, and its tenant has had its turn.
    #[cold]
    pub(super) fn serve(&mut self, links: &mut Links, slot: &Slot, id: SlotIndex) {
        self.remove(links, slot, id);
        self.classes[slot.command.class as usize].turn = slot.tenant.index() as u32 + 1;
    }

    /// The first of each tenant and class.
    pub(super) fn heads(&self) -> impl Iterator<Item = u16> {
        self.classes.iter().flat_map(|reads| {
            reads.tenants().filter_map(|tenant| reads.lists[tenant.index()].front())
        })
    }
}

/// The held reads of one class.
struct Reads {
    lists: [IndexList; TenantIndex::COUNT],
    /// The tenants that have any: a bit each.
    used: u64,
    /// The tenant whose turn it is, or the next one after it that has a share of the window.
    turn: u32,
    len: usize,
}

impl Reads {
    const EMPTY: Self =
        Self { lists: [const { IndexList::new() }; TenantIndex::COUNT], used: 0, turn: 0, len: 0 };

    fn push_back(&mut self, links: &mut Links, tenant: TenantIndex, id: u16) {
        self.lists[tenant.index()].push_back(links, id);
        self.used |= 1 << tenant.index();
        self.len += 1;
    }

    fn remove(&mut self, links: &mut Links, tenant: TenantIndex, id: u16) {
        let list = &mut self.lists[tenant.index()];
        list.remove(links, id);
        if list.is_empty() {
            self.used &= !(1 << tenant.index());
        }
        self.len -= 1;
    }

    /// The tenants that have any, beginning with the one whose turn it is.
    fn tenants(&self) -> impl Iterator<Item = TenantIndex> {
        let turn = self.turn % u64::BITS;
        let mut used = self.used.rotate_right(turn);
        core::iter::from_fn(move || {
            let next = used.trailing_zeros();
            used &= used.wrapping_sub(1);
            (next < u64::BITS).then(|| TenantIndex::of((next + turn) as usize))
        })
    }
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
        let held = if self.held.is_empty() || !window.admits_op() { 0 } else { self.with_share() };
        self.sending.len() + ClassOfService::ALL.into_iter().map(ops).sum::<usize>() + held
    }

    /// Has a read wait for its tenant's share.
    #[cold]
    pub(super) fn hold(&mut self, id: SlotIndex) {
        let slot = &mut self.slots[id.index()];
        slot.state = State::Held;
        self.held.len += 1;
        let reads = &mut self.held.classes[slot.command.class as usize];
        reads.push_back(&mut self.links, slot.tenant, id.0);
    }

    /// Whether a read of `tenant` may enter service, as far as others of this host need room.
    pub(super) fn has_share(&self, tenant: TenantIndex) -> bool {
        self.shares.admits(tenant, OP_SIZE_MAX)
    }

    /// How many held reads are of tenants that have a share.
    #[cold]
    fn with_share(&self) -> usize {
        let of_class = |reads: &Reads| {
            let tenants = reads.tenants().filter(|&it| self.has_share(it));
            tenants.map(|it| reads.lists[it.index()].len()).sum::<usize>()
        };
        self.held.classes.iter().map(of_class).sum()
    }

    /// The first held read of `class` whose tenant has a share.
    #[cold]
    fn first_held(&self, class: ClassOfService) -> Option<u16> {
        let reads = &self.held.classes[class as usize];
        let tenant = reads.tenants().find(|&it| self.has_share(it))?;
        reads.lists[tenant.index()].front()
    }

    /// The requests of the throughput class that wait, if they are all that there is to send.
    pub(in crate::nic) fn bulk(&self, now: Instant) -> Option<Bulk> {
        let fifos = |class| Moves::ALL.map(|moves| &self.waiting[fifo(class, moves)]);
        if !self.sending.is_empty()
            || !self.held.is_empty()
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

    /// Whether a read waits for nothing but the window.
    pub(in crate::nic) fn reads_wait(&self) -> bool {
        ClassOfService::ALL.into_iter().any(|it| !self.waiting[fifo(it, Moves::In)].is_empty())
            || (!self.held.is_empty() && self.with_share() > 0)
    }

    /// The op of `class` that came first, of those that may enter service: a read needs window, a
    /// mutation does not, as its data goes out.
    fn ready(&self, class: ClassOfService, admits_read: bool) -> Option<SlotIndex> {
        let head = |moves| self.waiting[fifo(class, moves)].front();
        let arrived_at = |id: u16| self.slots[usize::from(id)].arrived_at;
        let mut read = head(Moves::In);
        if !self.held.is_empty()
            && let Some(held) = self.first_held(class)
        {
            // Whoever came first: there may be both, when one tenant remains or a second has come.
            read = Some(read.filter(|&it| arrived_at(it) <= arrived_at(held)).unwrap_or(held));
        }
        let id = match (read.filter(|_| admits_read), head(Moves::Out)) {
            (Some(read), Some(mutation)) if arrived_at(mutation) < arrived_at(read) => mutation,
            (read, mutation) => read.or(mutation)?,
        };
        Some(SlotIndex(id))
    }

    //= 1rma#4.3-two-arbiters
    /// The next op of the class whose turn it is; of the other, if that class has none that may
    /// enter service.
    pub(super) fn next_ready(&mut self, admits_read: bool) -> Option<SlotIndex> {
        let (turn, other) = (self.first, self.first.other());
        if let Some(id) = self.ready(turn, admits_read) {
            self.first = other;
            return Some(id);
        }
        self.ready(other, admits_read)
    }

    /// How many ops of `class` have not entered service yet.
    pub(in crate::nic) fn ops_waiting(&self, class: ClassOfService) -> usize {
        let waiting = Moves::ALL.map(|moves| self.waiting[fifo(class, moves)].len());
        waiting.iter().sum::<usize>() + self.held.classes[class as usize].len
    }
}
