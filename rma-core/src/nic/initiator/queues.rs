//! The outgoing op FIFOs and their arbiters (1RMA §4.3): which op enters service next.

use super::{Initiator, slots::Slot};
use crate::{
    command::CommandSlotId,
    index_list::{IndexList, Links},
    limits::OP_SIZE_MAX,
    nic::{gather::Bulk, solicitation_window::SolicitationWindow, tenant::TenantIndex},
    op::{ClassOfService, Moves},
    time::Instant,
};

//= 1rma#4.3-two-arbiters
//= type=deviation
/// The FIFOs. Each class has two kinds: ops whose data comes in need window, and wait for it without
/// holding up the others; and of those each tenant has one, as it waits for its own share.
pub(super) struct Fifos {
    reads: [Reads; 2],
    others: [IndexList; 2],
}

/// Where an op waits.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    class: ClassOfService,
    moves: Moves,
    tenant: TenantIndex,
}

impl Slot {
    pub(super) const fn lane(&self) -> Lane {
        let (class, moves) = (self.command.class, self.command.op.moves());
        Lane { class, moves, tenant: self.tenant }
    }
}

impl Fifos {
    pub(super) const fn new() -> Self {
        Self { reads: [const { Reads::EMPTY }; 2], others: [const { IndexList::new() }; 2] }
    }

    pub(super) fn push_back(&mut self, links: &mut Links, lane: Lane, id: u16) {
        match lane.moves {
            Moves::In => self.reads[lane.class as usize].push_back(links, lane.tenant, id),
            Moves::Out => self.others[lane.class as usize].push_back(links, id),
        }
    }

    /// Takes an op out that does not enter service.
    pub(super) fn remove(&mut self, links: &mut Links, lane: Lane, id: u16) {
        match lane.moves {
            Moves::In => self.reads[lane.class as usize].remove(links, lane.tenant, id),
            Moves::Out => self.others[lane.class as usize].remove(links, id),
        }
    }

    /// Takes an op out that enters service: its tenant has had its turn.
    pub(super) fn serve(&mut self, links: &mut Links, lane: Lane, id: u16) {
        self.remove(links, lane, id);
        if lane.moves == Moves::In {
            self.reads[lane.class as usize].turn = lane.tenant.index() as u32 + 1;
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.reads.iter().all(Reads::is_empty) && self.others.iter().all(IndexList::is_empty)
    }

    pub(super) fn len(&self) -> usize {
        ClassOfService::ALL.into_iter().map(|class| self.len_of(class)).sum()
    }

    fn len_of(&self, class: ClassOfService) -> usize {
        self.reads[class as usize].len + self.others[class as usize].len()
    }

    /// The first of each FIFO.
    pub(super) fn heads(&self) -> impl Iterator<Item = u16> {
        ClassOfService::ALL.into_iter().flat_map(|class| self.heads_of(class))
    }

    fn heads_of(&self, class: ClassOfService) -> impl Iterator<Item = u16> {
        let reads = &self.reads[class as usize];
        let first = |tenant: TenantIndex| reads.lists[tenant.index()].front();
        reads.tenants().filter_map(first).chain(self.others[class as usize].front())
    }
}

/// The reads of one class.
struct Reads {
    lists: [IndexList; TenantIndex::COUNT],
    /// Which tenants have any: a bit each.
    used: u64,
    /// The tenant whose turn it is, or the next one after it that has a share of the window.
    turn: u32,
    len: usize,
}

impl Reads {
    const EMPTY: Self =
        Self { lists: [const { IndexList::new() }; TenantIndex::COUNT], used: 0, turn: 0, len: 0 };

    const fn is_empty(&self) -> bool {
        self.used == 0
    }

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
    pub(in crate::nic) fn frames_waiting(
        &self,
        window: &SolicitationWindow,
        is_shared: bool,
    ) -> usize {
        let reads = |reads: &Reads| if is_shared { self.with_share(reads) } else { reads.len };
        let inbound =
            if window.admits_op() { self.waiting.reads.iter().map(reads).sum() } else { 0 };
        let others = self.waiting.others.iter().map(IndexList::len).sum::<usize>();
        self.sending.len() + inbound + others
    }

    /// The requests of the throughput class that wait, if they are all that there is to send.
    pub(in crate::nic) fn bulk(&self, now: Instant) -> Option<Bulk> {
        if !self.sending.is_empty() || self.ops_waiting(ClassOfService::Latency) > 0 {
            return None;
        }
        let bulk = ClassOfService::Throughput;
        let waited = |id: u16| now.nanos_since(self.slots[usize::from(id)].arrived_at);
        Some(Bulk {
            requests: self.ops_waiting(bulk),
            under_way: self.bulk_under_way,
            waited_nanos: self.waiting.heads_of(bulk).map(waited).max()?,
            answered_nanos: now.nanos_since(self.bulk_answered_at?),
        })
    }

    /// Whether a read of `tenant` may enter service, as far as others of this host need room.
    pub(super) fn has_share(&self, tenant: TenantIndex) -> bool {
        self.shares.admits(tenant, OP_SIZE_MAX)
    }

    /// How many reads wait of tenants that have a share.
    #[cold]
    fn with_share(&self, reads: &Reads) -> usize {
        let tenants = reads.tenants().filter(|&it| self.has_share(it));
        tenants.map(|it| reads.lists[it.index()].len()).sum()
    }

    /// Whether a read waits for nothing but the window.
    #[inline]
    pub(in crate::nic) fn reads_wait(&self, is_shared: bool) -> bool {
        let waits = |it: &Reads| !it.is_empty() && (!is_shared || self.with_share(it) > 0);
        self.waiting.reads.iter().any(waits)
    }

    /// The first read of `class` whose tenant has a share.
    fn first_read(&self, class: ClassOfService, is_shared: bool) -> Option<u16> {
        let reads = &self.waiting.reads[class as usize];
        let tenant = reads.tenants().find(|&it| !is_shared || self.has_share(it))?;
        reads.lists[tenant.index()].front()
    }

    /// The op of `class` that came first, of those that may enter service: a read needs window, a
    /// mutation does not, as its data goes out.
    fn ready(&self, class: ClassOfService, room: Room) -> Option<CommandSlotId> {
        let read = if room.for_read { self.first_read(class, room.is_shared) } else { None };
        let arrived_at = |id: u16| self.slots[usize::from(id)].arrived_at;
        let id = match (read, self.waiting.others[class as usize].front()) {
            (Some(read), Some(mutation)) if arrived_at(mutation) < arrived_at(read) => mutation,
            (read, mutation) => read.or(mutation)?,
        };
        Some(CommandSlotId(id))
    }

    //= 1rma#4.3-two-arbiters
    /// The next op of the class whose turn it is; of the other, if that class has none that may
    /// enter service.
    pub(super) fn next_ready(&mut self, room: Room) -> Option<CommandSlotId> {
        let (turn, other) = (self.first, self.first.other());
        if let Some(id) = self.ready(turn, room) {
            self.first = other;
            return Some(id);
        }
        self.ready(other, room)
    }

    /// How many ops of `class` have not entered service yet.
    pub(in crate::nic) fn ops_waiting(&self, class: ClassOfService) -> usize {
        self.waiting.len_of(class)
    }
}

/// What there is room for.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// Whether the window has room for a read.
    pub(super) for_read: bool,
    /// Whether tenants have shares of it.
    pub(super) is_shared: bool,
}
