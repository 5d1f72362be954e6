//! A host of the simulated network: a shipped [`Nic`] behind a device of some rate and MTU, with a
//! clock of its own, which can be stopped. It takes frames and gives them as an engine does, or as
//! the paper's hardware.
//!
//! Everything here takes true time; the NIC is only ever told what its node's clock shows.

use core::time::Duration;
use std::collections::VecDeque;

use arrayvec::ArrayVec;
use rma_core::{
    addr::{HostAddr, LocalAddresses},
    backend::{BATCH, RxPacket, Transmit, TxFrame},
    command::{Command, Completion},
    crypto::EngineId,
    engine,
    error::CommandError,
    nic::{ConfigError, Nic, NicConfigBuilder, NicPlace, ReceiveLenMax},
    packet::{FRAMES_MAX, Packets, SMALL},
    quantum::Quantum,
    service::Service as _,
    time::Instant,
};

use crate::net::{
    beside::{Beside, Handed, Handling},
    burst::{Arrival, Burst, Came, Handled},
    clock::{ClockOptions, LocalClock},
    frame::{Frame, NodeId, ip_udp_len, wire_len},
    model_aead::Seals,
    queue::serialization,
    stall::{Readings, Stall},
    table::Table,
};

/// The options of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeOptions {
    /// The NIC's settings.
    pub nic: NicConfigBuilder,
    /// The place of the NIC; `receive_len_max` is set from `mtu`.
    pub place: NicPlace,
    /// The device's MTU: the largest IP packet that it sends and receives.
    pub mtu: u16,
    /// The device's rate of sending, in bytes a second; at least 1. While it sends what it was
    /// given it gets no more, so inbound queues fill as they do in front of a real device.
    pub rate: u64,
    /// The pace at which frames come to the NIC and leave it.
    pub pace: Pace,
    /// How many packets the device holds for an engine that does not run; further ones are lost.
    pub receive_ring: u32,
    /// The node's clock.
    pub clock: ClockOptions,
}

impl NodeOptions {
    /// The options of one of the host's engines, which have equal parts of its first counter
    /// values.
    #[must_use]
    pub(crate) fn of_engine(&self, engine: u16) -> Self {
        let place = &self.place;
        if place.engines == 1 {
            return *self;
        }
        let part = (place.counter_end - place.counter_start) / u64::from(place.engines);
        let start = place.counter_start + part * u64::from(engine);
        let place = place.with(|it| {
            it.engine = EngineId(engine);
            (it.counter_start, it.counter_end) = (start, start + part);
        });
        Self { place, ..*self }
    }

    /// The longest time until an engine looks into its rings, where it runs.
    #[must_use]
    pub const fn look(&self) -> Duration {
        self.pace.turn().saturating_add(SPIN)
    }

    /// The same, with counter values of its own for each life of the node.
    #[must_use]
    pub fn in_life(&self, life: u32) -> Self {
        let counter_start = self.place.counter_start + (u64::from(life) << 40);
        Self { place: self.place.with(|it| it.counter_start = counter_start), ..*self }
    }
}

/// The pace at which frames come to a NIC and leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// One by one, as in the paper's hardware: each leaves in a packet of its own.
    Hardware,
    /// In the turns of an engine: the frames of all packets that have come since the last one, up
    /// to [`engine::BURST`], then as many out as its quantum admits, which share packets; bulk
    /// requests gather.
    Engine {
        /// The shortest time between two turns for frames alone. What else there is to do has a
        /// turn at once, and so have frames when there is a burst of them.
        turn: Duration,
    },
}

impl Pace {
    /// Returns the time until another turn after one with frames alone.
    const fn turn(self) -> Duration {
        match self {
            Self::Hardware => Duration::ZERO,
            Self::Engine { turn } => turn,
        }
    }
}

/// The earliest next look of an engine that spins over requests which gather.
const SPIN: Duration = Duration::from_micros(1);

/// Whether a node's software runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It does.
    Running,
    /// It is stopped, as by SIGSTOP or a busy scheduler. Its device goes on.
    Paused,
    /// It is gone, and all its state with it.
    Down,
}

impl Handled {
    /// The state of a frame before it was handled.
    pub(crate) const NONE: Self =
        Self { result: Ok(()), counted_late: false, pushed_out: false, is_stalled: false };
}

/// The hosts by their addresses, and their MTUs, as an IP network would know them: a host that
/// receives less than Ethernet carries has a route that says so, or tells who sends it too much.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    hosts: Vec<(LocalAddresses, u16)>,
    by_addr: Table<HostAddr, NodeId>,
}

impl Routes {
    pub(crate) fn new(hosts: Vec<(LocalAddresses, u16)>) -> Self {
        let mut by_addr = Table::default();
        for (host, (addresses, _)) in (0..).map(NodeId).zip(&hosts) {
            addresses.iter().for_each(|addr| {
                by_addr.get_or_make(addr, || host);
            });
        }
        Self { hosts, by_addr }
    }

    /// A host begins a life with these addresses and this MTU.
    pub(crate) fn change(&mut self, host: NodeId, route: (LocalAddresses, u16)) {
        if self.hosts[host.index()] != route {
            self.hosts[host.index()] = route;
            *self = Self::new(core::mem::take(&mut self.hosts));
        }
    }

    /// The host that has `addr`.
    pub(crate) fn host_at(&self, addr: HostAddr) -> Option<NodeId> {
        self.by_addr.get(&addr).copied()
    }

    /// The MTU of `host`.
    pub(crate) fn mtu_of(&self, host: NodeId) -> usize {
        self.hosts[host.index()].1.into()
    }

    /// How long an IP packet to `destination` may be, as far as that is known.
    fn mtu(&self, destination: HostAddr) -> usize {
        let mtu = self.host_at(destination).map(|host| self.mtu_of(host));
        mtu.filter(|&mtu| mtu < ETHERNET_MTU.into()).unwrap_or(usize::MAX)
    }
}

/// The MTU that is no news of a path.
const ETHERNET_MTU: u16 = 1500;

/// The longest IP packet that is in one buffer of an AF_XDP socket. Beyond it frames are written
/// beside each other, [`BATCH`] at a time, and large ones share packets too.
const BUFFER: usize = 3498;

/// A host. Not public: a simulation shows it as its NIC.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its host, by the number of that host's first engine.
    pub(crate) host: NodeId,
    pub(crate) nic: Nic,
    /// The other engines of its host, if there are some.
    pub(crate) beside: Option<Beside>,
    pub(crate) clock: LocalClock,
    pub(crate) condition: Condition,
    /// Whether solicitations are lost on their way to its software.
    pub(crate) is_silent: bool,
    /// The number of its last pause, among all pauses.
    pub(crate) pause: u64,
    /// When it was resumed last.
    pub(crate) resumed_at: Option<Instant>,
    /// The packets that have arrived since the last turn.
    pub(crate) ring: VecDeque<Arrival>,
    ring_len: usize,
    pace: Pace,
    /// When the last turn was.
    turned_at: Instant,
    /// When the next turn is scheduled for, if it is.
    pub(crate) turn_scheduled: Option<Instant>,
    mtu: usize,
    rate: u64,
    /// When the device can take the next frame.
    device_free_at: Instant,
    /// Whether an event at `device_free_at` is scheduled.
    pub(crate) wake_scheduled: bool,
    /// The room that its NIC has for a frame.
    frame_room: usize,
    /// Frames that its NIC has written.
    pub(crate) written: u64,
    /// Those of them that no packet took.
    pub(crate) unpaid: u64,
}

/// Room in which frames are written and received, one node after the other.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// For [`FRAMES_MAX`] frames.
    tx: Vec<u8>,
    rx: Vec<Vec<u8>>,
    packets: Box<Packets>,
}

/// A packet that a NIC has written and given to its device.
#[derive(Debug)]
pub(crate) enum Sent {
    /// A packet, and the frames that are in it.
    Packet {
        frames: Vec<Written>,
        bytes: Box<[u8]>,
        /// When the last byte has left the device.
        left_at: Instant,
    },
    /// A frame that may begin no packet, and has found none.
    Unpaid(Written),
}

/// A frame, and where it goes.
#[derive(Debug)]
pub(crate) struct Written {
    /// How many frames the NIC had written before it.
    pub(crate) number: u64,
    pub(crate) transmit: Transmit,
    pub(crate) bytes: Box<[u8]>,
}

impl Written {
    fn of(number: u64, frame: &TxFrame<'_>) -> Self {
        let transmit = frame.transmit.expect("the NIC has written it");
        Self { number, transmit, bytes: frame.bytes[..transmit.len].into() }
    }
}

impl Node {
    /// An engine of `host` that starts at true time `now`, and seals its frames by `seals`.
    pub(crate) fn new(
        now: Instant,
        host: NodeId,
        options: &NodeOptions,
        seals: Seals,
    ) -> Result<Self, ConfigError> {
        let mtu = usize::from(options.mtu);
        let receive_len_max = ReceiveLenMax::of_mtu(mtu);
        let config =
            options.nic.build(options.place.with(|it| it.receive_len_max = receive_len_max))?;
        Ok(Self {
            host,
            nic: Nic::with_aead(config, seals.provider()),
            beside: None,
            clock: LocalClock::new(now, options.clock),
            condition: Condition::Running,
            is_silent: false,
            pause: 0,
            resumed_at: None,
            ring: VecDeque::new(),
            ring_len: options.receive_ring as usize,
            pace: options.pace,
            turned_at: now,
            turn_scheduled: None,
            mtu,
            rate: options.rate,
            device_free_at: now,
            wake_scheduled: false,
            frame_room: receive_len_max.ipv4,
            written: 0,
            unpaid: 0,
        })
    }

    /// The longest time until it looks into its rings, where it runs, in nanoseconds.
    pub(crate) fn look_max(&self) -> u64 {
        (self.pace.turn() + SPIN).as_nanos() as u64
    }

    /// Whether frames leave in turns.
    pub(crate) const fn takes_turns(&self) -> bool {
        matches!(self.pace, Pace::Engine { .. })
    }

    pub(crate) fn handle_command(
        &mut self,
        now: Instant,
        command: Command,
    ) -> Result<(), CommandError> {
        self.nic.handle_command(self.clock.show(now), command)
    }

    /// Holds a packet until the node runs again. Gives it back if the ring is full.
    pub(crate) fn hold(&mut self, arrival: Arrival) -> Result<(), Arrival> {
        if self.ring.len() >= self.ring_len {
            return Err(arrival);
        }
        self.ring.push_back(arrival);
        Ok(())
    }

    /// Keeps a packet until the next turn. Returns when that is; at the latest when there is a
    /// burst of frames.
    pub(crate) fn keep(&mut self, now: Instant, arrival: Arrival) -> Instant {
        self.ring.push_back(arrival);
        let frames: usize = self.ring.iter().map(|it| it.packet.frames.len()).sum();
        let is_full = frames >= engine::BURST || self.ring.len() >= self.ring_len;
        if is_full { now } else { now.max(self.turned_at + self.pace.turn()) }
    }

    /// The packets of a burst: they are taken whole, and none after as many frames.
    pub(crate) fn take_burst(&mut self) -> Vec<Arrival> {
        let mut frames = 0;
        let within = |arrival: &Arrival| {
            let before = frames;
            frames += arrival.packet.frames.len();
            before < engine::BURST
        };
        let count = self.ring.iter().map(within).take_while(|&it| it).count();
        self.ring.drain(..count).collect()
    }

    /// Whether other engines have put something into its rings.
    pub(crate) fn has_news(&self) -> bool {
        self.beside.as_ref().is_some_and(|it| !it.neighbours.is_idle())
    }

    /// Receives a burst of packets, of each of which the NIC gets a copy that it may change, and
    /// what other engines of the host have handed over. The node is stopped for a while in the
    /// midst of it if `draw` says so for one of the frames. Returns what it found, and for how long
    /// it was stopped.
    pub(crate) fn handle_packets(
        &mut self,
        now: Instant,
        arrivals: Vec<Arrival>,
        Room { rx, .. }: &mut Room,
        handed: &mut Handed,
        draw: impl FnMut(&Frame) -> Stall,
    ) -> (Vec<Came>, Duration) {
        let Self { nic, clock, mtu, is_silent, beside, .. } = self;
        rx.resize_with(rx.len().max(arrivals.len()), Vec::new);
        let copies = arrivals.iter().zip(rx).map(|(arrival, copy)| {
            let Arrival { packet, altered, .. } = arrival;
            copy.clear();
            copy.extend_from_slice(altered.as_deref().unwrap_or(&packet.bytes));
            let Transmit { source, destination, port, source_port, .. } = packet.transmit;
            let reply_len_max = *mtu - ip_udp_len(source.is_ipv4());
            let (link, bytes) = (None, &mut copy[..]);
            RxPacket { source, destination, port, source_port, reply_len_max, link, bytes }
        });
        let mut copies: Vec<_> = copies.collect();
        let mut burst = Burst::new();
        for (arrival, copy) in arrivals.into_iter().zip(&mut copies) {
            burst.take_apart(arrival, copy, *is_silent, handed.land(now));
        }
        let Burst { mut frames, tails, came, places } = burst;
        tails.into_iter().for_each(|tail| nic.drop_tail(tail));
        let before = clock.show(now);
        let tags: Vec<_> = frames.iter().map(|_| handed.tag()).collect();
        frames.iter_mut().zip(&tags).for_each(|(frame, tag)| frame.link = Some(tag));
        let received = frames.len();
        let mut handling = Handling::new(nic, clock, now, (came, places), handed, draw);
        // What is read of the clock meanwhile, it says itself.
        let clock = &Readings::still(before);
        match beside {
            None => {
                for batch in frames.chunks_mut(BATCH) {
                    handling.handle_frames(before, clock, batch);
                }
            }
            Some(beside) => {
                handling.look_at(beside);
                handling.take_keys();
                let mut frames = frames.into_iter();
                loop {
                    let mut batch: ArrayVec<_, BATCH> = frames.by_ref().take(BATCH).collect();
                    if batch.is_empty() {
                        break;
                    }
                    beside.neighbours.deliver(&mut handling, before, clock, &mut batch);
                    handling.note_given();
                }
                let share = engine::share(received);
                beside.neighbours.receive(&mut handling, before, clock, share);
                beside.neighbours.publish();
            }
        }
        handling.finish()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.nic.handle_timeout(self.clock.show(now));
    }

    /// A turn of the engine begins.
    pub(crate) const fn begin_turn(&mut self, now: Instant) {
        self.turned_at = now;
    }

    /// Sends the NIC's transmits into `sent`, if the device is free. Returns when to ask again, if
    /// some of it waits for more.
    pub(crate) fn poll_transmits(
        &mut self,
        now: Instant,
        routes: &Routes,
        room: &mut Room,
        sent: &mut Vec<Sent>,
    ) -> Option<Instant> {
        let local = self.clock.show(now);
        // A device that is infinitely fast is free at once.
        while self.device_free_at <= now && self.nic.wants_transmit() {
            let count = match self.pace {
                Pace::Hardware => self.write(now, 1, &mut Quantum::one_frame(), routes, room, sent),
                Pace::Engine { turn } if self.nic.gathers(local) => {
                    return Some(now + turn.max(SPIN));
                }
                Pace::Engine { .. } => self.transmit(now, routes, room, sent),
            };
            if count == 0 {
                break;
            }
        }
        None
    }

    /// Sends what an engine does in a turn. Returns how many frames.
    fn transmit(
        &mut self,
        now: Instant,
        routes: &Routes,
        room: &mut Room,
        sent: &mut Vec<Sent>,
    ) -> usize {
        let seen_at = self.nic.latency_class_seen_at();
        let mut quantum = engine::quantum(seen_at, self.clock.show(now));
        let at_once = if self.mtu > BUFFER { BATCH } else { FRAMES_MAX };
        let mut total = 0;
        loop {
            let most = engine::BURST.saturating_sub(total).max(quantum.expects_rest().into());
            let wanted = self.nic.frames_waiting().min(most);
            let mut filled = 0;
            while filled < wanted {
                let part = (wanted - filled).min(at_once);
                let count = self.write(now, part, &mut quantum, routes, room, sent);
                filled += count;
                if count < part {
                    break;
                }
            }
            total += filled;
            let is_over = filled < wanted || total >= engine::BURST || !quantum.admits();
            let is_begun = filled > 0 && quantum.expects_rest();
            if wanted == 0 || is_over && !is_begun || !self.nic.wants_transmit() {
                return total;
            }
        }
    }

    /// Has up to `wanted` frames written, puts them into packets, and gives those to the device.
    /// All of them, now: no frame waits for a later turn. Returns how many were written.
    fn write(
        &mut self,
        now: Instant,
        wanted: usize,
        quantum: &mut Quantum,
        routes: &Routes,
        Room { tx, packets, .. }: &mut Room,
        sent: &mut Vec<Sent>,
    ) -> usize {
        let Self { nic, clock, mtu, rate, device_free_at, frame_room, .. } = self;
        let first = self.written;
        let (own_mtu, len) = (*mtu, *frame_room);
        tx.resize(tx.len().max(len * FRAMES_MAX), 0);
        let mut frames: Vec<_> = tx.chunks_exact_mut(len).take(wanted).map(TxFrame::new).collect();
        let count = nic.poll_transmits(clock.show(now), &mut frames, quantum);
        let frames = &mut frames[..count];
        let movable = if own_mtu > BUFFER { usize::MAX } else { SMALL };
        packets.plan(frames, movable, |transmit, head| {
            let mtu = own_mtu.min(routes.mtu(transmit.destination));
            let headers = ip_udp_len(transmit.destination.is_ipv4());
            mtu.saturating_sub(headers).min(head.packet_room())
        });
        let mut is_in_one = [false; FRAMES_MAX];
        for packet in packets.list() {
            let places = packets.frames_of(packet).inspect(|&place| is_in_one[place] = true);
            let written: Vec<_> =
                places.map(|place| Written::of(first + place as u64, &frames[place])).collect();
            packets.gather(packet, frames);
            let bytes = frames[packet.first()].bytes[..packet.octets()].into();
            let is_ipv4 = written[0].transmit.source.is_ipv4();
            let wire_len = wire_len(packet.octets(), is_ipv4) as u64;
            *device_free_at = (*device_free_at).max(now) + serialization(*rate, wire_len);
            sent.push(Sent::Packet { frames: written, bytes, left_at: *device_free_at });
        }
        let unpaid = (first..).zip(frames.iter()).zip(is_in_one);
        let unpaid = unpaid.filter(|&(_, is_in_one)| !is_in_one);
        let before = sent.len();
        sent.extend(unpaid.map(|((number, frame), _)| Sent::Unpaid(Written::of(number, frame))));
        assert_eq!(sent.len() - before, packets.unpaid(), "each frame is sent, or left out");
        self.unpaid += packets.unpaid() as u64;
        self.written += count as u64;
        count
    }

    /// When the device can take the next frame, if that is later than `now`.
    pub(crate) fn busy_until(&self, now: Instant) -> Option<Instant> {
        (self.device_free_at > now).then_some(self.device_free_at)
    }

    pub(crate) fn poll_completion(&mut self) -> Option<Completion> {
        self.nic.poll_completion()
    }

    /// How much later than it wants to be the NIC may be woken, as it spins.
    pub(crate) fn spin(&self) -> Duration {
        // By the slowest of clocks.
        if self.beside.is_some() { SPIN + SPIN / 500 } else { Duration::ZERO }
    }

    /// When the NIC wants to be woken, in true time. One that waits for other engines of its host
    /// spins.
    ///
    /// # Panics
    /// If that should have been before now.
    pub(crate) fn timeout_at(&mut self, now: Instant) -> Option<Instant> {
        let local = self.clock.show(now);
        let mut timeout = self.nic.poll_timeout()?;
        if self.beside.is_some() && timeout <= local {
            timeout = local + SPIN;
        }
        assert!(timeout > local, "{}: a timeout that is due has been handled", self.host);
        Some(self.clock.when(timeout))
    }
}
