//! StaR as a service of an engine: both kinds of processing, side by side (§III-E1, figure 6).
//!
//! Frames come to one of two ports, so that nobody has to look into them to tell which processing
//! they are for. Connections of which this host is the stateless side, and those of which it is the
//! stateful side, share portals, protection domains, memory regions and the message counter, and
//! nothing else.
//!
//! Where a host has several engines, each has a service of its own, and a portal is one engine's,
//! with all its connections, whichever side it is of them. Every frame names both queue pairs of
//! its connection, those of set-ups and of changes of roles as well, so its header tells whose it
//! is: the engine of Z's portal has what F has sent, and the engine of F's what Z has. Services of
//! one host share nothing: two portals of two engines have connections as those of two hosts do.

mod memory;

use std::sync::Arc;

use rma_core::{
    addr::LocalAddresses,
    backend::{BATCH, ReceiveLenMax, RxFrame, TxFrame},
    capture::{Fate, Told, Verdicts},
    crypto::{CounterBlock, EngineId, IvCounter},
    error::DropReason,
    packet::Tail,
    port::Port,
    quantum::Quantum,
    seat::Word,
    service::Service,
    tenant::TenantIndex,
    time::{Clock, Instant},
    turns::{PerTurn, TakeCommands, Turns},
};
use rma_crypto::{AeadProvider, fastest};
use rma_shm::Line;

use crate::{
    config::{StarConfig, StarConfigError, StarPlace},
    counters::{StarCounters, StarDrop, StarEvent},
    handover::Handover,
    mr_table::MrTable,
    pd_table::PdTable,
    portal::{Post, Report, StarPort},
    portals::Portals,
    sealer::Sealer,
    stateful::Stateful,
    stateless::{self, Stateless},
    tables::Tables,
    verbs::WcStatus,
    wire,
};

/// Posts taken in one turn.
const POSTS: PerTurn = PerTurn { portal: 64, all: 128 };

/// StaR on an engine of a host.
#[derive(Debug)]
pub struct Star {
    config: StarConfig,
    sealer: Sealer,
    pds: PdTable,
    mrs: MrTable,
    portals: Portals,
    turns: Turns,
    stateless: Stateless,
    stateful: Stateful,
    /// Whether stateful processing is asked first for the next frame to send.
    stateful_first: bool,
    /// When frames were looked at last. A turn begins with a look at the clock, and frames may come
    /// after that while its thread stands still: what they say of time is about now, not then.
    seen_at: Instant,
    counters: Arc<StarCounters>,
    /// The place where each packet is told of, while somebody asks.
    verdicts: Option<Arc<Verdicts>>,
}

impl Star {
    /// StaR with the fastest AEAD provider that the processor can run. All memory that it will ever
    /// need is allocated here. `counters` are the values of the message counter that it may use.
    #[must_use]
    pub fn new(config: StarConfig, counters: CounterBlock) -> Self {
        Self::with_aead(config, counters, fastest())
    }

    /// The same, with frames sealed by `aead`.
    #[must_use]
    pub fn with_aead(
        config: StarConfig,
        counters: CounterBlock,
        aead: &'static dyn AeadProvider,
    ) -> Self {
        let settings = config.settings();
        Self {
            sealer: Sealer::new(aead, config.place().engine, IvCounter::new(counters)),
            pds: PdTable::new(settings.pds),
            mrs: MrTable::new(settings.mrs),
            portals: Portals::new(config.portals()),
            turns: Turns::NEW,
            stateless: Stateless::new(&config),
            stateful: Stateful::new(&config),
            stateful_first: true,
            seen_at: Instant::from_nanos(0),
            counters: Arc::default(),
            verdicts: None,
            config,
        }
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &StarConfig {
        &self.config
    }

    /// Has `verdicts` told of each packet from now on.
    pub fn set_verdicts(&mut self, verdicts: Option<Arc<Verdicts>>) {
        self.verdicts = verdicts;
    }

    /// Follows a device whose MTU has changed.
    ///
    /// # Errors
    /// If the shortest frame no longer fits. Then nothing changes.
    pub fn set_receive_len_max(&mut self, receive: ReceiveLenMax) -> Result<(), StarConfigError> {
        let place = StarPlace { receive_len_max: receive, ..*self.config.place() };
        self.config = self.config.settings().build(place)?;
        Ok(())
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &Arc<StarCounters> {
        &self.counters
    }

    /// The message counter.
    #[must_use]
    pub const fn counter(&self) -> &IvCounter {
        self.sealer.counter()
    }

    /// The message counter, to give it blocks.
    pub const fn counter_mut(&mut self) -> &mut IvCounter {
        self.sealer.counter_mut()
    }

    /// Bytes of the tables of stateless processing. They do not depend on how many connections
    /// there are (S4).
    #[must_use]
    pub const fn stateless_memory(&self) -> usize {
        self.stateless.memory()
    }

    /// Bytes of the tables of stateful processing, in use or not.
    #[must_use]
    pub fn stateful_memory(&self) -> usize {
        self.stateful.memory()
    }

    /// From now on the whitelist of stateful processing (§III-D1) is not asked: to measure what it
    /// costs, as the paper's figure 12 does. It takes nothing from anybody's safety, as a stateless
    /// side trusts no whitelist of others: it finds such frames not authentic. So they come to
    /// something only where nothing is authenticated.
    pub const fn forgo_whitelist(&mut self) {
        self.stateful.forgo_whitelist();
    }

    /// How many connections there are of which this host is the stateful side.
    #[must_use]
    pub fn stateful_connections(&self) -> usize {
        self.stateful.len()
    }

    /// How many work requests stateful processing knows, and how many frames of it are under way.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> (usize, usize) {
        self.stateful.in_use()
    }

    /// Serves a portal from now on. Returns its number, which QPNs have in them; `None` if this
    /// engine has as many portals as it can have.
    pub fn attach(&mut self, port: StarPort) -> Option<u16> {
        self.portals.attach(port)
    }

    /// Serves a portal no more, and ends all its protection domains: its number may be another's
    /// next, who is to have nothing of it. Connections of which this host is the stateful side are
    /// closed first, which takes until all that they have sent is dead: until then, and for a
    /// portal that there is not, this returns `None`, and must be called again. From the first call
    /// on it takes no post, so that is within W and a bit, whatever its application posts. Only the
    /// first call looks at each of its queue pairs.
    pub fn detach(&mut self, now: Instant, portal: u16) -> Option<StarPort> {
        if self.portals.close(portal) {
            let (mut host, _, stateless, stateful) = self.split();
            let qps = host.portals.get(portal.into()).map_or(0, |port| port.memory().qps());
            for qp in (0..qps).filter(|&qp| !stateful.is_stateful(portal, qp)) {
                // Its peer is told, once, as if the application had closed it.
                stateless.close(&mut host, now, portal, qp);
            }
            stateful.leave(&mut host, now, portal);
        }
        if self.portals.get(portal.into())?.has_stateful() {
            return None;
        }
        let port = self.portals.detach(portal)?;
        for row in 0..self.pds.capacity() {
            if let Some(pd) = self.pds.at(row).filter(|&pd| self.pds.owner(pd) == Some(portal)) {
                // There is one, so this cannot fail.
                let _ = self.dealloc_pd(portal, pd);
            }
        }
        Some(port)
    }

    /// The tables that both kinds of processing work with, and these.
    fn split(&mut self) -> (Tables<'_>, &mut Sealer, &mut Stateless, &mut Stateful) {
        let Self { config, sealer, pds, mrs, portals, stateless, stateful, counters, .. } = self;
        let host = Tables { config, aead: sealer.aead, pds, mrs, portals, counters };
        (host, sealer, stateless, stateful)
    }

    /// Takes one post of a portal that no frame is needed for. `false` if there is none.
    fn take_post(&mut self, now: Instant, portal: u16) -> bool {
        let (mut host, _, stateless, stateful) = self.split();
        let next = host.portals.get_mut(portal.into()).and_then(StarPort::next_post);
        let Some((post, inline)) = next else { return false };
        let is_entered = match &post {
            Post::Wqe(posted) => stateful.post(&mut host, now, portal, posted, inline.as_ref()),
            _ => false,
        };
        let Some(port) = host.portals.get_mut(portal.into()) else { return false };
        match post {
            Post::Wqe(_) if is_entered => port.done(),
            Post::Open { qp, is_stateful: true } => {
                port.done();
                stateful.open(&mut host, now, portal, qp);
            }
            Post::OpenRc { qp, connects } => {
                port.done();
                stateful.open_rc(&mut host, now, portal, qp, connects);
            }
            Post::Open { qp, is_stateful: false } => {
                port.done();
                let key = stateless::open(&mut host, portal, qp);
                let status = if key.is_some() { WcStatus::Success } else { WcStatus::LocQpOpErr };
                let key = key.map_or([0; 16], |key| *key.expose());
                let opened = host.opened(now, qp, status, key);
                self.report(portal, &opened);
            }
            Post::Close { qp } if stateful.is_stateful(portal, qp) => {
                port.done();
                stateful.close(&mut host, now, portal, qp);
            }
            Post::Close { qp } => {
                port.done();
                stateless.close(&mut host, now, portal, qp);
                self.report(portal, &Report::Closed { qp });
            }
            Post::Introduce { qp } if stateful.is_stateful(portal, qp) => {
                port.done();
                stateful.greet(now, portal, qp);
            }
            Post::Switch { qp, is_automatic } if stateful.is_stateful(portal, qp) => {
                port.done();
                stateful.switch(&mut host, portal, qp, is_automatic);
            }
            Post::TakeOver { qp, handover, outstanding } => {
                port.done();
                self.take_over(now, portal, qp, &handover, outstanding);
            }
            // It stays the next until the frame that tells of it is written.
            Post::Wqe(_) | Post::Introduce { .. } | Post::Switch { .. } | Post::Answer { .. } => {
                host.portals.wait(portal);
                return false;
            }
        }
        true
    }

    //= star#ours-switch
    /// This host, the stateless side of a connection, becomes the stateful one: in one step no
    /// frame of the era before has effect any longer, and there is a row for the next, and rows for
    /// the work requests that its application will post anew.
    fn take_over(
        &mut self,
        now: Instant,
        portal: u16,
        qp: u32,
        handover: &Handover,
        outstanding: u32,
    ) {
        let (mut host, _, _, stateful) = self.split();
        let may = !stateful.is_stateful(portal, qp)
            && stateless::may_be_taken_over(&host, portal, qp, handover.era);
        let status = if may {
            stateful.take_over(&mut host, now, portal, qp, handover, outstanding)
        } else {
            WcStatus::LocQpOpErr
        };
        if status == WcStatus::Success {
            stateless::close(&mut host, portal, qp);
        } else {
            host.counters.count(StarEvent::OpenRefused);
        }
        self.report(portal, &Report::TakenOver { qp, status });
    }

    /// Writes the next frame, to be sealed. Returns whether there was one. Both kinds of processing
    /// take turns.
    fn write_next(&mut self, now: Instant, frame: &mut TxFrame<'_>) -> bool {
        let stateful_first = self.stateful_first;
        let (mut host, sealer, stateless, stateful) = self.split();
        for is_stateful in [stateful_first, !stateful_first] {
            let is_written = if is_stateful {
                stateful.write_next(&mut host, sealer, now, frame)
            } else {
                let is_other = |portal, qp| stateful.is_stateful(portal, qp);
                stateless.write_next(&mut host, sealer, now, frame, is_other)
            };
            if is_written {
                self.stateful_first = !is_stateful;
                return true;
            }
        }
        false
    }

    fn report(&mut self, portal: u16, report: &Report) {
        if !self.portals.report(portal.into(), report) {
            self.counters.count(StarEvent::ReportLost);
        }
    }
}

/// The portals, as they take turns.
struct Posts<'a> {
    star: &'a mut Star,
    now: Instant,
}

impl TakeCommands for Posts<'_> {
    fn tenant_of(&self, portal: u16) -> TenantIndex {
        self.star.portals.get(portal.into()).map_or(TenantIndex::HOST, StarPort::tenant)
    }

    fn take_command(&mut self, portal: u16) -> Option<usize> {
        self.star.take_post(self.now, portal).then_some(1)
    }
}

impl Service for Star {
    /// None: keys of protection domains are their engine's own.
    fn take_keys(&mut self) {}

    /// Nothing: no stranger is told anything.
    fn note_paid(&mut self) {}

    fn poll_word(&mut self) -> Option<Word> {
        None
    }

    fn handle_word(&mut self, _: &Line) {}

    fn addresses(&self) -> &LocalAddresses {
        &self.config.place().addresses
    }

    //= star#IV-A-ports
    fn serves(&self, port: Port) -> bool {
        let place = self.config.place();
        port == place.stateless_port || port == place.stateful_port
    }

    fn frame_len(&self, _: Port, octets: &[u8]) -> Result<usize, DropReason> {
        wire::frame_len(octets)
    }

    fn note_packet(&mut self, _: Port, frames: usize) {
        self.counters.count_many(StarEvent::FrameReceived, frames);
        if let Some(verdicts) = &self.verdicts {
            verdicts.tell(Told::Packet { frames, rest: Fate::Star });
        }
    }

    fn drop_tail(&mut self, _: Port, _: Tail) {
        self.counters.drop_frame(StarDrop::Malformed);
    }

    //= star#ours-engines
    fn owner_of(&self, frame: &RxFrame<'_>) -> Option<EngineId> {
        let portal = wire::destination_of(frame.bytes)?.portal();
        let is_local = self.addresses().contains(frame.destination);
        self.config.engine_of_portal(portal).filter(|_| is_local)
    }

    //= star#III-E1-both-on-one-nic
    fn handle_frames(&mut self, now: Instant, clock: &impl Clock, frames: &mut [RxFrame<'_>]) {
        let now = clock.now().max(now);
        self.seen_at = now;
        let stateless_port = self.config.place().stateless_port;
        // Frames of one port behind each other: their order means nothing.
        frames.sort_unstable_by_key(|frame| frame.port != stateless_port);
        let stateless = frames.partition_point(|frame| frame.port == stateless_port);
        let (to_stateless, to_stateful) = frames.split_at_mut(stateless);
        let (mut host, _, stateless, stateful) = self.split();
        for frames in to_stateless.chunks_mut(BATCH) {
            stateless.handle_frames(&mut host, now, clock, frames);
            while let Some((portal, qp)) = stateless.next_given_away() {
                stateful.give_away(&mut host, now, portal, qp);
            }
        }
        for frames in to_stateful.chunks_mut(BATCH) {
            stateful.handle_frames(&mut host, now, clock, frames);
        }
    }

    fn take_commands(&mut self, now: Instant) -> usize {
        let now = now.max(self.seen_at);
        let mut busy = self.portals.begin_turn(now);
        let mut turns = self.turns;
        let taken = turns.take(POSTS, &mut busy, &mut Posts { star: self, now });
        self.turns = turns;
        self.portals.end_turn(busy);
        taken
    }

    fn handle_timeout(&mut self, now: Instant) {
        let now = now.max(self.seen_at);
        let (mut host, _, _, stateful) = self.split();
        stateful.handle_timeout(&mut host, now);
    }

    fn complete(&mut self) -> usize {
        0
    }

    fn latency_class_seen_at(&self) -> Option<Instant> {
        None
    }

    fn frames_waiting(&self) -> usize {
        self.stateless.frames_waiting(&self.portals) + self.stateful.frames_waiting()
    }

    fn has_frames(&self) -> bool {
        self.stateless.has_frames(&self.portals) || self.stateful.has_frames()
    }

    /// Frames wait for one turn, and not for two, where an application was given completions: to
    /// ring the device's doorbell takes a system call, which it need not wait for where it has this
    /// thread; and what it makes of them goes into the same packets. `star_send_over_floor` was
    /// 2.9 without this, and is 1.6.
    fn gathers(&self, _: Instant) -> bool {
        self.portals.may_go_first() && self.stateless.has_few_answers()
    }

    fn poll_transmits(
        &mut self,
        now: Instant,
        frames: &mut [TxFrame<'_>],
        quantum: &mut Quantum,
    ) -> usize {
        let now = now.max(self.seen_at);
        let mut count = 0;
        for frames in frames.chunks_mut(BATCH) {
            let mut written = 0;
            for frame in &mut *frames {
                frame.transmit = None;
                if !quantum.admits() || !self.write_next(now, frame) {
                    break;
                }
                if let Some(transmit) = &frame.transmit {
                    quantum.take(transmit);
                }
                written += 1;
            }
            self.sealer.seal(&mut frames[..written]);
            count += written;
            if written < frames.len() {
                break;
            }
        }
        self.counters.count_many(StarEvent::FrameSent, count);
        count
    }

    fn wants_transmit(&self) -> bool {
        self.sealer.can_seal() && self.has_frames()
    }

    fn wake_sleepers(&mut self) {
        self.portals.wake_sleepers();
    }

    fn announce_sleep(&self) {
        for port in self.portals.iter() {
            port.memory().engine_doorbell().announce_sleep();
        }
    }

    fn awake(&self) {
        for port in self.portals.iter() {
            port.memory().engine_doorbell().awake();
        }
    }

    fn is_idle(&self) -> bool {
        self.portals.is_idle()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.stateful.poll_timeout()
    }
}

#[cfg(test)]
mod tests;
