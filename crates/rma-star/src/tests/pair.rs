//! Two hosts and a network between them, all in memory and in virtual time: Z with stateless
//! processing, F with stateful processing. Clocks differ by as much as one likes.

mod rc;

use core::{net::Ipv6Addr, time::Duration};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use rma_core::{
    addr::{HostAddr, LocalAddresses},
    backend::{BATCH, RxFrame, TxFrame},
    crypto::{CounterBlock, IvCounter},
    packet::FRAMES_MAX,
    port::Port,
    quantum::Quantum,
    service::Service,
    time::Instant,
};
use rma_shm::{Line, Region};

use crate::{
    config::{StarConfig, StarConfigBuilder, StarPlace},
    counters::StarCounters,
    keys::PdKey,
    mr_table::{Access, MrTable},
    names::{MrId, PdId, Qpn},
    pd_table::PdTable,
    portal::{Post, Posted, QpRecord, Report, StarPortal, portal},
    portals::Portals,
    sealer::Sealer,
    service::Star,
    stateful::Stateful,
    tables::Tables,
    verbs::{WcStatus, WqeOp},
};

/// Bytes of each host's memory region.
pub(super) const MEMORY: usize = 1 << 20;

/// How long a frame takes.
const LATENCY: Duration = Duration::from_micros(5);

/// When Z's library posts again what nobody has taken.
const POST_AGAIN: Duration = Duration::from_millis(20);

/// The longest frame on the network.
const FRAME_LEN_MAX: usize = 1472;

pub(super) const QP: u32 = 3;

/// A host's application and its memory.
pub(super) struct Application {
    portal: StarPortal,
    pub(super) pd: PdId,
    pub(super) mr: MrId,
    pub(super) memory: Arc<Region>,
    slots: u32,
    /// The QP that is posted to.
    pub(super) qp: u32,
    /// By QP, and by whether it is the queue of RECVs.
    sequences: HashMap<(u32, bool), u32>,
    /// The work that was posted and is not reported, by slot.
    pub(super) open: BTreeMap<u32, (Posted, Option<Line>)>,
    /// The report of each slot.
    pub(super) ended: BTreeMap<u32, (WcStatus, u32, Option<u32>, bool)>,
    /// The other reports.
    pub(super) told: Vec<Report>,
}

impl Application {
    fn new(portal: StarPortal, pd: PdId, mr: MrId, memory: Arc<Region>) -> Self {
        let (slots, qp, sequences) = (0, QP, HashMap::new());
        let (open, ended, told) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { portal, pd, mr, memory, slots, qp, sequences, open, ended, told }
    }

    /// Posts a work request; returns its slot. Whose MR and offsets are given.
    pub(super) fn post(&mut self, op: WqeOp, wr: Wr) -> u32 {
        let slot = self.slots;
        self.slots += 1;
        let sequence = self.sequences.entry((self.qp, op.is_recv())).or_default();
        let is_same = |it: &&Posted| (it.qp, it.op.is_recv()) == (self.qp, op.is_recv());
        let open = self.open.values().map(|(posted, _)| posted).filter(is_same);
        let oldest = open.map(|posted| posted.sequence).min().unwrap_or(*sequence);
        let posted = Posted {
            slot,
            generation: 7 + slot,
            qp: self.qp,
            sequence: *sequence,
            open_before: (*sequence - oldest) as u16,
            op,
            again: false,
            is_moved: false,
            immediate: wr.immediate,
            inline_len: wr.inline.map_or(0, |_| wr.len as u8),
            mr: self.mr.0,
            offset: wr.here,
            length: wr.len,
            remote_mr: wr.remote.map_or(0, |mr| mr.0),
            remote_offset: wr.there,
        };
        *sequence += 1;
        let inline = wr.inline.map(|byte| Line([u64::from_le_bytes([byte; 8]); 8]));
        self.portal.post(&Post::Wqe(posted), inline.as_ref()).unwrap();
        self.open.insert(slot, (posted, inline));
        slot
    }

    pub(super) fn command(&mut self, post: Post) {
        self.portal.post(&post, None).unwrap();
    }

    fn post_again(&mut self) {
        for (posted, inline) in self.open.values() {
            let taken = self.portal.memory().taken(posted.qp);
            let taken = if posted.op.is_recv() { taken.recv } else { taken.send };
            if posted.sequence >= taken.0 {
                let post = Post::Wqe(Posted { again: true, ..*posted });
                let _ = self.portal.post(&post, inline.as_ref());
            }
        }
    }

    fn take_reports(&mut self) {
        while let Some(report) = self.portal.poll() {
            let Report::Completed { slot, generation, op, sequence, status, .. } = report else {
                self.told.push(report);
                continue;
            };
            let Report::Completed { byte_len, immediate, is_of_write, .. } = report else {
                continue;
            };
            let (posted, _) = self.open.remove(&slot).expect("each is reported once");
            let is_told = (generation, sequence, op);
            assert_eq!(is_told, (posted.generation, posted.sequence, posted.op));
            self.ended.insert(slot, (status, byte_len, immediate, is_of_write));
        }
    }

    pub(super) fn fill(&self, offset: u64, bytes: &[u8]) {
        self.memory.copy_in(offset, bytes).unwrap();
    }

    pub(super) fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.copy_out(offset, &mut bytes).unwrap();
        bytes
    }

    pub(super) fn status(&self, slot: u32) -> Option<WcStatus> {
        self.ended.get(&slot).map(|ended| ended.0)
    }
}

/// A work request, as tests name it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wr {
    pub(super) here: u64,
    pub(super) len: u32,
    pub(super) remote: Option<MrId>,
    pub(super) there: u64,
    pub(super) immediate: Option<u32>,
    /// The byte that all inline data is.
    pub(super) inline: Option<u8>,
}

/// The host of F: what a service makes of stateful processing.
pub(super) struct FHost {
    config: StarConfig,
    sealer: Sealer,
    pds: PdTable,
    pub(super) mrs: MrTable,
    portals: Portals,
    pub(super) stateful: Stateful,
    pub(super) counters: StarCounters,
}

impl FHost {
    fn new(config: StarConfig) -> Self {
        let counter = IvCounter::new(CounterBlock::new(1 << 40, 1 << 41));
        let settings = config.settings();
        Self {
            sealer: Sealer::new(rma_crypto::fastest(), config.place().engine, counter),
            pds: PdTable::new(settings.pds),
            mrs: MrTable::new(settings.mrs),
            portals: Portals::new(config.portals()),
            stateful: Stateful::new(&config),
            counters: StarCounters::default(),
            config,
        }
    }

    pub(super) fn with<T>(&mut self, with: impl FnOnce(&mut Stateful, &mut Tables<'_>) -> T) -> T {
        let Self { config, sealer, pds, mrs, portals, stateful, counters } = self;
        let mut host = Tables { config, aead: sealer.aead, pds, mrs, portals, counters };
        with(stateful, &mut host)
    }

    fn take_posts(&mut self, now: Instant) {
        while let Some((post, inline)) = self.portals.get_mut(0).unwrap().next_post() {
            self.portals.get_mut(0).unwrap().done();
            self.with(|stateful, host| match post {
                Post::Wqe(posted) => {
                    assert!(stateful.post(host, now, 0, &posted, inline.as_ref()), "there is one");
                }
                Post::Open { qp, .. } => stateful.open(host, now, 0, qp),
                Post::Close { qp } => stateful.close(host, now, 0, qp),
                Post::OpenRc { qp, connects } => stateful.open_rc(host, now, 0, qp, connects),
                Post::Switch { qp, is_automatic } => stateful.switch(host, 0, qp, is_automatic),
                Post::Introduce { .. } | Post::Answer { .. } | Post::TakeOver { .. } => {}
            });
        }
    }

    /// The next frame, sealed.
    fn next_frame(&mut self, now: Instant) -> Option<Packet> {
        let mut bytes = vec![0; FRAME_LEN_MAX];
        let mut frame = [TxFrame::new(&mut bytes)];
        let waiting = self.stateful.frames_waiting();
        assert_eq!(self.stateful.has_frames(), waiting > 0, "both tell the same");
        let Self { config, sealer, pds, mrs, portals, stateful, counters } = self;
        let mut host = Tables { config, aead: sealer.aead, pds, mrs, portals, counters };
        let is_written = stateful.write_next(&mut host, sealer, now, &mut frame[0]);
        if !is_written {
            return None;
        }
        assert!(waiting > 0, "a frame that nobody was told of");
        sealer.seal(&mut frame);
        let transmit = frame[0].transmit?;
        let (port, is_v6) = (transmit.port, !transmit.destination.is_ipv4());
        bytes.truncate(transmit.len);
        Some(Packet { to_z: true, is_v6, port, bytes })
    }
}

/// A frame on the network.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) to_z: bool,
    /// Between the hosts' IPv6 addresses: to each the other is another peer there.
    pub(super) is_v6: bool,
    pub(super) port: Port,
    pub(super) bytes: Vec<u8>,
}

impl Packet {
    /// The number of its type on the wire.
    pub(super) fn frame_type(&self) -> u8 {
        self.bytes[1]
    }
}

/// The fate of a frame: after how long each copy of it arrives.
pub(super) type Fate = Box<dyn FnMut(&Packet) -> Vec<Duration>>;

/// Two hosts and a network.
pub(super) struct Pair {
    pub(super) now: Instant,
    /// How far Z's clock is before F's.
    pub(super) z_ahead: Duration,
    pub(super) z: Application,
    pub(super) f: Application,
    pub(super) star: Star,
    pub(super) f_host: FHost,
    network: BTreeMap<(Instant, u64), Packet>,
    packets: u64,
    pub(super) fate: Fate,
    again_at: Instant,
    /// K_c of the connection that was made last.
    pub(super) key: [u8; 16],
    /// Frames that were sent, by type.
    pub(super) sent: HashMap<u8, u32>,
}

pub(super) fn address(last: u8) -> HostAddr {
    HostAddr::from([192, 0, 2, last])
}

fn address_v6(last: u8) -> HostAddr {
    HostAddr::from(Ipv6Addr::new(0x2001, 0xdb8, last.into(), 0, 0, 0, 0, 1))
}

fn all_rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE
}

impl Pair {
    /// A pair whose connection is ready, on a network that loses nothing.
    pub(super) fn new(settings: StarConfigBuilder) -> Self {
        let mut pair = Self::unconnected(settings);
        pair.connect(QP);
        pair.sent.clear();
        pair
    }

    /// Another connection, between the QPs of that number of both.
    pub(super) fn connect(&mut self, qp: u32) {
        self.connect_between(qp, [address(1), address(2)]);
    }

    /// The same, over IPv6.
    pub(super) fn connect_v6(&mut self, qp: u32) {
        self.connect_between(qp, [address_v6(1), address_v6(2)]);
    }

    fn connect_between(&mut self, qp: u32, [z, f]: [HostAddr; 2]) {
        let record = QpRecord {
            peer: f,
            pd: self.z.pd.0,
            local_pd: self.z.pd.0,
            peer_qpn: Qpn::new(0, qp).unwrap().to_bits(),
            nonce: 9,
            era: 0,
            packet_len_max: FRAME_LEN_MAX as u16,
            z_clock: 0,
            key: [0; 16],
        };
        self.z.portal.set_record(qp, &record);
        self.z.command(Post::Open { qp, is_stateful: false });
        self.run_for(Duration::from_micros(50));
        let Some(Report::Opened { status: WcStatus::Success, key, clock, .. }) = self.z.told.pop()
        else {
            panic!("the connection is not open at Z");
        };
        let (local_pd, z_clock) = (self.f.pd.0, clock);
        let record = QpRecord { peer: z, local_pd, z_clock, key, ..record };
        self.f.portal.set_record(qp, &record);
        self.f.command(Post::Open { qp, is_stateful: true });
        self.z.command(Post::Introduce { qp });
        self.run_for(Duration::from_micros(50));
        let [Report::Opened { status: WcStatus::Success, .. }, Report::Ready { .. }] =
            self.f.told[..]
        else {
            panic!("the connection is not ready at F: {:?}", self.f.told);
        };
        self.f.told.clear();
        self.key = key;
    }

    fn unconnected(settings: StarConfigBuilder) -> Self {
        let config = |last| {
            let mut addresses = LocalAddresses::from(address(last));
            addresses.insert(address_v6(last));
            let mut place = StarPlace::at(addresses);
            place.receive_len_max = rma_core::backend::ReceiveLenMax::of_mtu(1500);
            settings.build(place).unwrap()
        };
        let memory = || Arc::new(Region::new(MEMORY).unwrap());
        let key = |octet| PdKey::from_bytes([octet; 16]);

        let mut star = Star::new(config(1), CounterBlock::new(0, 1 << 40));
        let (z_portal, z_port) = portal(4096, 16).unwrap();
        let number = star.attach(z_port).unwrap();
        let z_memory = memory();
        let z_pd = star.alloc_pd(number, &key(1)).unwrap();
        let span = 0..MEMORY as u64;
        let z_mr =
            star.reg_mr(number, z_pd, Arc::clone(&z_memory), span.clone(), all_rights()).unwrap();
        let z = Application::new(z_portal, z_pd, z_mr, z_memory);

        let mut f_host = FHost::new(config(2));
        let (f_portal, f_port) = portal(4096, 16).unwrap();
        let number = f_host.portals.attach(f_port).unwrap();
        let f_memory = memory();
        let f_pd = f_host.pds.alloc(rma_crypto::fastest(), number, &key(2)).unwrap();
        let f_mr = f_host.mrs.register(f_pd, Arc::clone(&f_memory), span, all_rights()).unwrap();
        let f = Application::new(f_portal, f_pd, f_mr, f_memory);

        Self {
            now: Instant::from_nanos(1_000_000),
            z_ahead: Duration::from_secs(100 * 86_400),
            z,
            f,
            star,
            f_host,
            network: BTreeMap::new(),
            packets: 0,
            fate: Box::new(|_| vec![LATENCY]),
            again_at: Instant::ZERO + POST_AGAIN,
            key: [0; 16],
            sent: HashMap::new(),
        }
    }

    /// The message counters of both hosts, Z's first.
    pub(super) fn counters(&mut self) -> [&mut IvCounter; 2] {
        [self.star.counter_mut(), self.f_host.sealer.counter_mut()]
    }

    pub(super) fn z_now(&self) -> Instant {
        self.now + self.z_ahead
    }

    fn carry(&mut self, packet: Packet) {
        *self.sent.entry(packet.frame_type()).or_default() += 1;
        for delay in (self.fate)(&packet) {
            self.packets += 1;
            self.network.insert((self.now + delay, self.packets), packet.clone());
        }
    }

    /// Sends a frame that was recorded once more.
    pub(super) fn replay(&mut self, packet: Packet) {
        self.packets += 1;
        self.network.insert((self.now, self.packets), packet);
    }

    /// Frames that come together.
    pub(super) fn deliver(&mut self, mut packets: Vec<Packet>) {
        let to_z = packets[0].to_z;
        let (from, to) = if to_z { (2, 1) } else { (1, 2) };
        let now = if to_z { self.z_now() } else { self.now };
        let frame_of = |packet| {
            let Packet { port, bytes, is_v6, .. }: &mut Packet = packet;
            let address = if *is_v6 { address_v6 } else { address };
            RxFrame {
                source: address(from),
                destination: address(to),
                port: *port,
                source_port: rma_core::port::SourcePort::FIRST,
                reply_len_max: FRAME_LEN_MAX,
                link: None,
                is_first: true,
                is_handed_over: false,
                bytes,
            }
        };
        let mut frames: Vec<_> = packets.iter_mut().map(frame_of).collect();
        if to_z {
            self.star.handle_frames(now, &now, &mut frames);
        } else {
            self.f_host.with(|stateful, host| {
                stateful.handle_frames(host, now, &now, &mut frames);
            });
        }
    }

    /// Everything that happens now.
    fn turn(&mut self) {
        let (now, z_now) = (self.now, self.z_now());
        while let Some((&(at, number), _)) = self.network.first_key_value()
            && at <= now
        {
            let mut packets = vec![self.network.remove(&(at, number)).unwrap()];
            while packets.len() < BATCH
                && let Some(next) = self.network.first_entry()
                && next.key().0 == at
                && next.get().to_z == packets[0].to_z
            {
                packets.push(next.remove());
            }
            self.deliver(packets);
        }
        if now >= self.again_at {
            self.z.post_again();
            self.again_at = now + POST_AGAIN;
        }
        self.star.take_commands(z_now);
        self.star.handle_timeout(z_now);
        self.f_host.take_posts(now);
        self.f_host.with(|stateful, host| stateful.handle_timeout(host, now));
        let mut buffers = vec![vec![0; FRAME_LEN_MAX]; FRAMES_MAX];
        loop {
            let mut frames: Vec<_> = buffers.iter_mut().map(|it| TxFrame::new(it)).collect();
            let mut quantum = Quantum::new(1 << 20);
            let count = self.star.poll_transmits(z_now, &mut frames, &mut quantum);
            let packets: Vec<Packet> = frames[..count]
                .iter()
                .map(|frame| {
                    let transmit = frame.transmit.unwrap();
                    let bytes = frame.bytes[..transmit.len].to_vec();
                    let is_v6 = !transmit.destination.is_ipv4();
                    Packet { to_z: false, is_v6, port: transmit.port, bytes }
                })
                .collect();
            packets.into_iter().for_each(|packet| self.carry(packet));
            // Those behind a post that no frame is for.
            if count == 0 && self.star.take_commands(z_now) == 0 {
                break;
            }
        }
        while let Some(packet) = self.f_host.next_frame(now) {
            self.carry(packet);
        }
        let is_silent = !self.f_host.sealer.can_seal();
        let waiting = self.f_host.stateful.frames_waiting();
        assert!(waiting == 0 || is_silent, "it says that it has a frame");
        self.z.take_reports();
        self.f.take_reports();
    }

    /// Goes on until `end`, as far as something happens.
    pub(super) fn run_until(&mut self, end: Instant) {
        loop {
            self.turn();
            let frame = self.network.keys().next().map(|&(at, _)| at);
            let timeout = self.f_host.stateful.poll_timeout();
            let again = (!self.z.open.is_empty()).then_some(self.again_at);
            let z_timeout = self.star.poll_timeout();
            let z_timeout = z_timeout
                .map(|at| Instant::from_nanos(at.as_nanos() - self.z_ahead.as_nanos() as u64));
            let next = [frame, timeout, z_timeout, again].into_iter().flatten().min();
            match next {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => break,
            }
        }
        self.now = end;
        self.turn();
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Goes on until everything that was posted is reported, or so much time has passed.
    pub(super) fn run_to_the_end(&mut self, most: Duration) {
        let end = self.now + most;
        while self.now < end && !(self.z.open.is_empty() && self.f.open.is_empty()) {
            self.run_for(Duration::from_millis(1));
        }
    }
}
