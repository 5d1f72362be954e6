//! One host: a `Star` for each engine, its applications, and a clock of its own.

use core::time::Duration;
use std::collections::VecDeque;

use rma_core::{
    addr::HostAddr,
    backend::{BATCH, ReceiveLenMax, RxFrame, TxFrame},
    crypto::{CounterBlock, EngineId},
    port::SourcePort,
    quantum::Quantum,
    service::Service,
    time::Instant,
};
use rma_star::{
    config::{StarConfigBuilder, StarPlace},
    keys::PdKey,
    library::{CqId, Mr, Verbs, VerbsConfig, VerbsPlace, Wc},
    mr_table::Access,
    names::PdId,
    portal::portal,
    service::Star,
};

use crate::{
    network::{MILLI, Network, Packet, Random},
    oracle::{Memory, PARTS},
};

/// The longest frame, and the longest packet that a host takes.
const FRAME_LEN_MAX: usize = 1472;

/// Slots and queue pairs of a portal, and the places of its completion queue.
const SLOTS: u32 = 1024;
const QPS: u32 = 512;

/// Packets that wait for a host that does not look at them; more are lost.
const RECEIVE_QUEUE: usize = 256;

/// The most frames of a turn.
const TURN: usize = 64;

/// A clock that begins anywhere and goes at a rate of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriftingClock {
    offset: u64,
    /// How much faster than true time it is, in millionths.
    ppm: i64,
}

impl DriftingClock {
    /// At most 1/4000 too fast or slow: two of them drift apart by 1/2000 at most.
    pub(crate) fn draw(random: &mut Random) -> Self {
        let ppm = random.below(501).cast_signed() - 250;
        // Often what frames tell of it goes round in the run: 32 bits of microseconds.
        let offset = match random.below(3) {
            0 => random.below(1 << 56),
            1 => 0,
            _ => (random.below(1 << 20) << 32).saturating_sub(random.below(2_000_000)) * 1000,
        };
        Self { offset, ppm }
    }

    pub(crate) fn at(self, now: u64) -> Instant {
        let drift = now.cast_signed() * self.ppm / 1_000_000;
        Instant::from_nanos((self.offset + now).saturating_add_signed(drift))
    }

    /// When it will show this, not earlier.
    fn when(self, shows: Instant) -> u64 {
        let nanos = i128::from(shows.as_nanos().saturating_sub(self.offset));
        let scaled = nanos * 1_000_000 / i128::from(1_000_000 + self.ppm);
        u64::try_from(scaled).unwrap_or(u64::MAX - 2) + 2
    }
}

/// An application of a host.
#[derive(Debug)]
pub(crate) struct Application {
    pub(crate) verbs: Verbs,
    pub(crate) memory: Memory,
    pub(crate) pd: PdId,
    pub(crate) cq: CqId,
    /// The memory regions of the parts of its memory.
    pub(crate) mrs: [Mr; 3],
    /// Its ends of connections: which connection, and which of its ends.
    pub(crate) ends: Vec<(usize, usize)>,
    /// It looks around when it is that late.
    pub(crate) wakes_at: u64,
}

/// The settings that a host is made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostSettings {
    pub(crate) star: StarConfigBuilder,
    pub(crate) verbs: VerbsConfig,
    /// Each has tables of these sizes.
    pub(crate) engines: u16,
    /// Portals of the engines in turns.
    pub(crate) applications: usize,
}

/// A host that may die and start anew: all that it has is here.
#[derive(Debug)]
pub(crate) struct Host {
    number: usize,
    /// How often it was started: what was before is nothing to it.
    pub(crate) life: u64,
    pub(crate) stars: Vec<Star>,
    pub(crate) applications: Vec<Application>,
    pub(crate) clock: DriftingClock,
    received: VecDeque<Packet>,
    /// Messages of set-ups that nobody has looked at.
    pub(crate) messages: VecDeque<(usize, usize, Vec<u8>)>,
    /// It does nothing before.
    pub(crate) busy_until: u64,
    /// When the next turn is scheduled.
    pub(crate) turn_at: u64,
}

pub(crate) fn address(host: usize) -> HostAddr {
    HostAddr::from([192, 0, 2, host as u8])
}

impl Host {
    /// Starts a host for another time. Its message counter goes on behind what it has reserved.
    pub(crate) fn start(
        number: usize,
        life: u64,
        settings: &HostSettings,
        random: &mut Random,
    ) -> Self {
        let star = |engine| {
            let place = StarPlace::at(address(number)).with(|it| {
                it.receive_len_max = ReceiveLenMax::of_mtu(1500);
                (it.engine, it.engines) = (EngineId(engine), settings.engines);
            });
            let config = settings.star.build(place).expect("settings that work");
            Star::new(config, CounterBlock::new(life << 32, (life + 1) << 32))
        };
        let mut stars: Vec<_> = (0..settings.engines).map(star).collect();
        let engines = stars.len();
        let applications = (0..settings.applications)
            .map(|it| Self::application(number, &mut stars[it % engines], settings, random))
            .collect();
        let clock = DriftingClock::draw(random);
        let (received, messages) = Default::default();
        let (busy_until, turn_at) = (0, u64::MAX);
        Self { number, life, stars, applications, clock, received, messages, busy_until, turn_at }
    }

    fn application(
        number: usize,
        star: &mut Star,
        settings: &HostSettings,
        random: &mut Random,
    ) -> Application {
        let (application, engine) = portal(SLOTS, QPS).expect("a portal");
        let portal = star.attach(engine).expect("a portal more");
        let secret = std::array::from_fn(|_| random.next() as u8);
        let pd = star.alloc_pd(portal, &PdKey::from_bytes(secret)).expect("a domain");
        let place = VerbsPlace::new(portal, address(number), FRAME_LEN_MAX as u16);
        let mut verbs = Verbs::new(application, place, settings.verbs);
        let cq = verbs.create_cq(2 * SLOTS);
        let memory = Memory::new(Random(random.next()));
        let rights =
            [Access::REMOTE_READ, Access::LOCAL_WRITE, Access::LOCAL_WRITE | Access::REMOTE_WRITE];
        let mrs = std::array::from_fn(|part| {
            let (region, span) = (&memory.region, &PARTS[part]);
            let id = star.reg_mr(portal, pd, region.clone(), span.clone(), rights[part]);
            Mr::new(id.expect("a region"), pd, region.clone(), span.clone())
        });
        Application { verbs, memory, pd, cq, mrs, ends: Vec::new(), wakes_at: 0 }
    }

    /// Returns the time by its clock.
    pub(crate) fn now(&self, now: u64) -> Instant {
        self.clock.at(now)
    }

    /// A packet waits to be looked at.
    pub(crate) fn receive(&mut self, packet: Packet) {
        if self.received.len() < RECEIVE_QUEUE {
            self.received.push_back(packet);
        }
    }

    /// The engines take frames that came: to any of them, and from there to their owners.
    pub(crate) fn handle_frames(&mut self, now: u64) {
        let count = self.received.len().min(BATCH);
        let mut packets: Vec<_> = self.received.drain(..count).collect();
        let mut frames: Vec<_> = self.stars.iter().map(|_| Vec::new()).collect();
        for (nth, packet) in packets.iter_mut().enumerate() {
            let lands_at = nth % self.stars.len();
            let star = &self.stars[lands_at];
            let Ok(len) = star.frame_len(packet.port, &packet.bytes) else { continue };
            let frame = RxFrame {
                source: packet.source,
                destination: packet.destination,
                port: packet.port,
                source_port: SourcePort::FIRST,
                reply_len_max: FRAME_LEN_MAX,
                link: None,
                is_first: true,
                is_handed_over: false,
                bytes: &mut packet.bytes[..len],
            };
            let owner = star.owner_of(&frame).map_or(lands_at, |it| it.0.into());
            frames[owner].push(frame);
        }
        let now = self.clock.at(now);
        for (star, frames) in self.stars.iter_mut().zip(&mut frames) {
            star.handle_frames(now, &now, frames);
        }
    }

    /// The engines do the rest of their turns. Whether one may have reported something.
    pub(crate) fn engine(
        &mut self,
        now: u64,
        network: &mut Network,
        buffers: &mut [Vec<u8>],
    ) -> bool {
        let local = self.clock.at(now);
        let turn = |star| Self::turn(star, (now, local), network, buffers);
        self.stars.iter_mut().map(turn).fold(false, |any, one| any | one)
    }

    fn turn(
        star: &mut Star,
        (now, local): (u64, Instant),
        network: &mut Network,
        buffers: &mut [Vec<u8>],
    ) -> bool {
        let is_due = star.poll_timeout().is_some_and(|at| at <= local);
        let mut taken = star.take_commands(local);
        star.handle_timeout(local);
        let mut sent = 0;
        while sent < TURN {
            let mut frames: Vec<_> = buffers.iter_mut().map(|it| TxFrame::new(it)).collect();
            let count = star.poll_transmits(local, &mut frames, &mut Quantum::new(1 << 16));
            for frame in &frames[..count] {
                let Some(transmit) = frame.transmit else { continue };
                let bytes = frame.bytes[..transmit.len].to_vec();
                let (source, destination, port) =
                    (transmit.source, transmit.destination, transmit.port);
                network.carry(now, Packet { source, destination, port, bytes });
            }
            sent += count;
            // Those behind a post that a frame was for.
            let behind = star.take_commands(local);
            taken += behind;
            if behind == 0 && count == 0 {
                break;
            }
        }
        star.complete();
        star.wake_sleepers();
        is_due || taken > 0 || sent > 0
    }

    /// Whether there is something to do at once.
    pub(crate) fn is_busy(&self) -> bool {
        !self.received.is_empty()
            || !self.messages.is_empty()
            || self.stars.iter().any(Star::wants_transmit)
    }

    /// When there is something to do by time: for an engine, or an application's library.
    pub(crate) fn timeout(&self) -> Option<u64> {
        let libraries = self.applications.iter().map(|it| {
            let timeout = it.verbs.poll_timeout().map(|at| self.clock.when(at));
            Some(timeout.unwrap_or(u64::MAX).min(it.wakes_at))
        });
        let timeouts = self.stars.iter().map(Star::poll_timeout);
        let engines = timeouts.map(|it| it.map(|at| self.clock.when(at)));
        libraries.chain(engines).flatten().min()
    }

    /// Of how many connections its engines are the stateful side.
    pub(crate) fn stateful_connections(&self) -> usize {
        self.stars.iter().map(Star::stateful_connections).sum()
    }

    /// Completions of an application.
    pub(crate) fn completions(&mut self, application: usize) -> Vec<Wc> {
        let Application { verbs, cq, .. } = &mut self.applications[application];
        let mut wcs = [Wc::EMPTY; 32];
        let mut all = Vec::new();
        loop {
            let count = verbs.poll_cq(*cq, &mut wcs);
            all.extend_from_slice(&wcs[..count]);
            if count < wcs.len() {
                return all;
            }
        }
    }

    /// A number that names it in failures.
    pub(crate) const fn name(&self) -> (usize, u64) {
        (self.number, self.life)
    }
}

const fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// Settings of all hosts of a run. Frames go as each host likes.
pub(crate) fn settings(random: &mut Random) -> (StarConfigBuilder, VerbsConfig) {
    let mut star = StarConfigBuilder::default();
    let mut verbs = VerbsConfig::default();
    (star.connections, star.work_requests, star.frames_under_way) = (128, 1024, 512);
    (star.filter_entries, star.answers) = (1 << 12, random.pick(&[128, 256, 512]));
    star.cc.cwnd_initial = random.pick(&[1.0, 16.0]);
    if random.below(4) > 0 {
        let valid = Duration::from_millis(4 + random.below(12));
        (star.valid, verbs.valid) = (valid, valid);
        star.retransmit_timeout = valid * 17 / 16 + Duration::from_micros(random.below(4000));
        star.retries = 4 + random.below(4) as u8;
        star.rnr_timeout = Duration::from_millis(300 + random.below(700));
        star.probe_interval = Duration::from_millis(100 + random.below(900));
        verbs.probe_interval = star.probe_interval;
        verbs.repost_timeout = Duration::from_millis(5 + random.below(20));
        verbs.retries = star.retries;
        verbs.set_up_timeout = Duration::from_millis(1000 + random.below(2000));
    }
    // Some hosts give connections away when they are the stateful side of a few.
    verbs.rebalances = random.below(3) == 0;
    verbs.threshold = random.pick(&[1, 4, 16, 768]);
    (star, verbs)
}

/// Within what time everything ends whose peer is dead.
pub(crate) fn bound(star: &StarConfigBuilder, verbs: &VerbsConfig) -> u64 {
    // Either side may wait for the other, whose clock is slower.
    let sides = star.ends_within() + verbs.ends_within();
    let sum = nanos(sides + star.rnr_timeout + verbs.set_up_timeout);
    sum + sum / 1000 + 100 * MILLI
}

/// Buffers that frames are written into.
pub(crate) fn buffers() -> Vec<Vec<u8>> {
    vec![vec![0; FRAME_LEN_MAX]; BATCH]
}
