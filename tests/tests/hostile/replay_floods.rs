//! P13 for recorded ops, on a real kernel: whoever replays the requests of one host, without a key,
//! holds nothing that another host's ops need, whether receives, staging, records or the turns of
//! SETTLEs.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use core::{
    sync::atomic::{AtomicBool, AtomicU64},
    time::Duration,
};
use std::net::{SocketAddr, UdpSocket};

use rma_lab::{Lab, LabConfig, evidence};
use rma_tests::{
    hosts::{CLIENT_PID, Loopback},
    replays::{Flood, What, requests},
};
use rma_xdp::{
    Completion, Grant, Host, HostAddr, HostConfig, OpStatus, OpType, Permissions, Pid, Portal,
    ReceiveQueue, RegisteredRegion,
    config::{NicConfigBuilder, Timing},
    device::Device,
    messages::ReceiveQueueLayout,
    metrics::DropReason,
    ops::{Source, Verdict},
    time::{Clock, TscClock},
};

/// The process whose requests are replayed.
const VICTIM: Pid = Pid(77);

const RECEIVES: u16 = 4;

/// How many requests were recorded, and how many are replayed in a second.
const RECORDED: usize = 2048;
const PER_SECOND: u64 = 10_000;

/// Honest ops beside each flood, at least.
const OPS: u64 = 120;

/// How often an op is asked about whose end is not known: before its record may be forgotten.
const ASKED_MAX: u32 = 50;

/// How long is waited for what may never come.
const PATIENCE: Duration = Duration::from_secs(60);

/// The offset in the region at which honest ops count and write; the flood asks for what is behind.
const WORD: u64 = 0;
const PLACE: u64 = 4096;
const VICTIMS: u64 = 8192;

/// A target; an honest host; and a socket at the address of a third, which was granted everything
/// and is gone.
struct Scene {
    target: Host,
    queue: ReceiveQueue,
    region: RegisteredRegion,
    honest: Honest,
    victim: HostAddr,
    flood: UdpSocket,
    to: SocketAddr,
    /// Dropped last.
    _lab: Option<Lab>,
}

fn nic() -> NicConfigBuilder {
    let timing = Timing::software(Duration::from_micros(10), Duration::from_millis(200));
    NicConfigBuilder::default().with(|it| it.timing = timing)
}

impl Scene {
    fn over_udp() -> Self {
        let Loopback { addresses: [honest, target], port } = Loopback::unused();
        let open = |addr: HostAddr, pid| {
            let config = HostConfig::udp(addr).with(|it| {
                it.port = port;
                it.pid = pid;
                it.nic = nic();
            });
            Host::open(config).unwrap()
        };
        let hosts = [open(honest, CLIENT_PID), open(target, Pid(2))];
        // Nobody reads what comes there.
        let socket = UdpSocket::bind((Loopback::third().ip(), port)).unwrap();
        let victim = Loopback::third();
        Self::of(hosts, [honest, target], victim, socket, (target.ip(), port).into(), None)
    }

    fn over_xdp() -> Self {
        let lab = Lab::new(&LabConfig::default()).unwrap();
        let [target, honest] = [Lab::A_V4, Lab::B_V4].map(HostAddr::from);
        let victim = HostAddr::from([192, 0, 2, 100]);
        let port = rma_xdp::config::DEFAULT_PORT;
        let address = format!("{victim}/{}", Lab::V4_PREFIX);
        lab.b().ip(&["addr", "add", &address, "dev", Lab::INTERFACE]).unwrap();
        let open = |netns: &rma_lab::Netns, addr, pid| {
            let _inside = netns.enter().unwrap();
            let config = HostConfig::udp(addr).with(|it| {
                it.device = Device::xdp(Lab::INTERFACE);
                it.port = port;
                it.pid = pid;
                it.nic = nic();
            });
            Host::open(config).unwrap()
        };
        let hosts = [open(lab.b(), honest, CLIENT_PID), open(lab.a(), target, Pid(2))];
        hosts[0].resolve(target).unwrap();
        hosts[1].resolve(honest).unwrap();
        // The target knows the way to whoever has a grant.
        hosts[1].resolve(victim).unwrap();
        let socket = {
            let _inside = lab.b().enter().unwrap();
            UdpSocket::bind((victim.ip(), 50_000)).unwrap()
        };
        let to = (target.ip(), port).into();
        Self::of(hosts, [honest, target], victim, socket, to, Some(lab))
    }

    fn of(
        [client, target]: [Host; 2],
        [honest, _]: [HostAddr; 2],
        victim: HostAddr,
        flood: UdpSocket,
        to: SocketAddr,
        lab: Option<Lab>,
    ) -> Self {
        let layout = ReceiveQueueLayout::new(RECEIVES, 4096).unwrap();
        let both = Permissions::SEND | Permissions::NOTIFY;
        let mut queue = target.receive_queue(layout, both).unwrap();
        queue.post_all();
        let all = Permissions::WRITE | Permissions::NOTIFY | Permissions::ATOMIC;
        let region = target.register_with_events(&queue, 16384, all).unwrap();
        let of = |op_type| grant(&target, &queue, &region, (honest, CLIENT_PID), op_type);
        let source = client.register(4096, Permissions::NONE).unwrap();
        source.write(0, &[7; 4096]).unwrap();
        let honest = Honest {
            grants: TYPES.map(of),
            portals: [(); 2].map(|()| client.portal(1).unwrap()),
            source,
            word: 0,
            failed: [0; OpStatus::ALL.len()],
            _host: client,
        };
        Self { target, queue, region, honest, victim, flood, to, _lab: lab }
    }
}

/// The types of recorded ops, in the order in which honest ops come.
const TYPES: [OpType; 6] = [
    OpType::Send,
    OpType::FetchAdd,
    OpType::Write,
    OpType::Notify,
    OpType::CompareSwap,
    OpType::WriteWithImm,
];

fn grant(
    target: &Host,
    queue: &ReceiveQueue,
    region: &RegisteredRegion,
    (initiator, pid): (HostAddr, Pid),
    op_type: OpType,
) -> Grant {
    let on = if is_to_queue(op_type) { queue.region() } else { region };
    target.grant(on, initiator, pid, op_type).unwrap()
}

const fn is_to_queue(op_type: OpType) -> bool {
    matches!(op_type, OpType::Send | OpType::Notify)
}

/// Ops of the honest host, one after the other.
struct Honest {
    grants: [Grant; TYPES.len()],
    /// One for the queue and one for the region, so that each op says that the one before is done:
    /// otherwise honest ops alone would fill the records.
    portals: [Portal; 2],
    source: RegisteredRegion,
    /// The expected value of the word.
    word: u64,
    /// Ops and SETTLEs that did not end with OK, by their status.
    failed: [u64; OpStatus::ALL.len()],
    _host: Host,
}

impl Honest {
    fn issue(&mut self, number: u64) -> Completion {
        let Self { portals, source, word, .. } = self;
        let grant = &self.grants[number as usize % TYPES.len()];
        let portal = &mut portals[usize::from(is_to_queue(grant.op_type))];
        let source = Source { region: source, offset: 0, len: 4096 };
        let issued = match grant.op_type {
            OpType::Send => portal.send(grant, source.region, 0, 4096, number),
            OpType::Notify => portal.notify(grant, number),
            OpType::FetchAdd => portal.fetch_add(grant, WORD, 1),
            OpType::CompareSwap => portal.compare_swap(grant, WORD, *word, *word + 1),
            OpType::WriteWithImm => portal.write_with_imm(grant, PLACE, source, number),
            _ => portal.write_ordered(grant, PLACE, source),
        };
        issued.unwrap();
        self.end(number)
    }

    fn end(&mut self, number: u64) -> Completion {
        let to_queue = is_to_queue(TYPES[number as usize % TYPES.len()]);
        let portal = &mut self.portals[usize::from(to_queue)];
        let completion = portal.wait_timeout(PATIENCE).unwrap().expect("every op ends");
        let not_ready = OpStatus::RemoteNotReady;
        assert_ne!(completion.status, not_ready, "a request alone takes no receive");
        self.failed[completion.status as usize] += u64::from(completion.status != OpStatus::Ok);
        completion
    }

    /// Whether the op was applied, as far as is known.
    fn run(&mut self, number: u64) -> Option<bool> {
        let completion = self.issue(number);
        if completion.status == OpStatus::Ok {
            assert!(completion.result().is_none_or(|found| found == self.word));
            return Some(true);
        }
        if !completion.may_have_changed() {
            return Some(false);
        }
        let name = completion.name().expect("it was solicited");
        for _ in 0..ASKED_MAX {
            let grant = self.grants[number as usize % TYPES.len()];
            self.portals[usize::from(is_to_queue(grant.op_type))].settle(&grant, name).unwrap();
            let answer = self.end(number);
            match answer.verdict() {
                Some(Verdict::Applied) => return Some(true),
                Some(Verdict::NotApplied) => return Some(false),
                // Others have taken its record: it was not applied, or that was long ago.
                Some(Verdict::Forgotten) => return None,
                None => {}
            }
        }
        panic!("nobody says what became of {name:?}: {:?}", self.failed)
    }
}

impl Scene {
    /// Honest ops, until each has happened once, and the flood has sent all that it has at least
    /// twice.
    fn run_beside(&mut self, name: &str, whats: &[What]) {
        let victim = (self.victim, VICTIM);
        let grant_for = |what: &What| {
            (*what, grant(&self.target, &self.queue, &self.region, victim, what.op_type()))
        };
        let asked: Vec<_> = whats.iter().map(grant_for).collect();
        let recorded = requests(&asked, VICTIMS, RECORDED);
        let state = (AtomicBool::new(false), AtomicU64::new(0));
        self.honest.failed.fill(0);
        let (forgotten, parked) = (self.forgotten(), self.target.engines()[0].counters.parked());
        std::thread::scope(|scope| {
            let Self { honest, queue, region, flood, to, .. } = self;
            let flood = Flood::start(scope, &state, (flood, *to), &recorded, PER_SECOND);
            let clock = TscClock::new();
            let mut number = 0;
            while number < OPS || flood.sent() < 2 * RECORDED as u64 {
                let waited = clock.now().as_nanos();
                let failed = honest.failed;
                assert!(waited < PATIENCE.as_nanos() as u64, "op {number} ({name}): {failed:?}");
                // One that was lost on a busy machine, or refused, is issued again.
                if once(honest, queue, region, number) {
                    number += 1;
                } else {
                    std::thread::yield_now();
                }
            }
            let failed: Vec<_> = OpStatus::ALL
                .into_iter()
                .map(|it| (it, honest.failed[it as usize]))
                .filter(|it| it.1 > 0)
                .collect();
            let of = |status: OpStatus| honest.failed[status as usize];
            assert_eq!(of(OpStatus::RemoteAuthenticationFailure), 0);
            evidence::show(format_args!(
                "{number} honest ops beside {} replayed requests ({name}); not OK: {failed:?}",
                flood.sent()
            ));
        });
        self.queue.post_all();
        self.assert_nothing_is_held();
        self.assert_the_victim_did_nothing();
        // It was no flood that nobody has noticed.
        let is_asked = |what: &What| matches!(what, What::Settle(_));
        if whats.iter().any(is_asked) {
            assert!(self.forgotten() > forgotten, "SETTLEs are answered: {name}");
        }
        if !whats.iter().all(is_asked) {
            let parked = self.target.engines()[0].counters.parked() - parked;
            assert!(parked > 0, "entries are taken, and wanted: {name}");
        }
        let refused = self.target.engines()[0].counters.drops(DropReason::RequestUnauthenticated);
        assert_eq!(refused, 0, "what is replayed is authentic");
    }

    fn forgotten(&self) -> u64 {
        let settled = self.target.metrics().settled;
        settled.iter().find(|it| it.0 == Verdict::Forgotten).expect("every verdict").1
    }

    /// Once the flood is over and its time has passed: all tables are as they were, and all
    /// receives are posted.
    fn assert_nothing_is_held(&self) {
        let clock = TscClock::new();
        loop {
            let metrics = self.target.metrics();
            let gauges = metrics.gauges;
            let held = [
                gauges.pending_writes_used.iter().sum(),
                gauges.pending_writes_parked,
                gauges.window_debited,
                gauges.staging_used,
            ];
            let queues = metrics.receive_queues;
            let posted = [queues.receives_posted, queues.events_unread];
            if held == [0; 4] && posted == [RECEIVES.into(), 0] {
                return;
            }
            let waited = clock.now().as_nanos();
            assert!(waited < PATIENCE.as_nanos() as u64, "{held:?} are held, {posted:?} posted");
            std::thread::yield_now();
        }
    }

    fn assert_the_victim_did_nothing(&self) {
        let mut bytes = vec![0; 8192];
        self.region.read(VICTIMS, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0), "nobody has sent any data for it");
        assert_eq!(self.region.load(WORD), Ok(self.honest.word));
    }
}

/// One honest op, and what it must have left. Whether it was applied: what is there says so, and
/// what the op itself says must agree.
fn once(
    honest: &mut Honest,
    queue: &mut ReceiveQueue,
    region: &RegisteredRegion,
    number: u64,
) -> bool {
    queue.post_all();
    let op_type = TYPES[number as usize % TYPES.len()];
    region.write(PLACE, &[0; 4096]).unwrap();
    let known = honest.run(number);
    let event = queue.poll();
    let mut bytes = [0; 4096];
    region.read(PLACE, &mut bytes).unwrap();
    let is_applied = match op_type {
        OpType::Send | OpType::Notify | OpType::WriteWithImm => event.is_some(),
        OpType::Write => bytes == [7; 4096],
        _ => region.load(WORD) != Ok(honest.word),
    };
    assert!(known.is_none_or(|known| known == is_applied), "{op_type} {number}: {known:?}");
    if let Some(event) = event {
        assert_eq!((event.op_type, event.immediate, event.pid), (op_type, number, CLIENT_PID));
        if op_type == OpType::Send {
            queue.read(&event, &mut bytes).unwrap();
        }
        assert!(op_type == OpType::Notify || bytes == [7; 4096], "{op_type} {number}");
    }
    assert!(queue.poll().is_none(), "nobody else has sent anything");
    if matches!(op_type, OpType::FetchAdd | OpType::CompareSwap) {
        honest.word += u64::from(is_applied);
        assert_eq!(region.load(WORD), Ok(honest.word), "{op_type} {number}");
    }
    let is_untouched = bytes == [0; 4096];
    assert!(op_type != OpType::Write || is_applied || is_untouched, "all of it or nothing");
    is_applied
}

/// Against receives; staging and window; records; SETTLE; and all at once.
fn floods() -> [(&'static str, Vec<What>); 5] {
    let ops = TYPES.map(What::Op);
    let settles = TYPES.map(What::Settle);
    let [send, add, write, notify, swap, imm] = ops;
    [
        ("messages and notifications", vec![send, notify, imm]),
        ("ordered WRITEs", vec![write]),
        ("atomics", vec![add, swap]),
        ("SETTLEs", settles.to_vec()),
        ("everything", [ops, settles].concat()),
    ]
}

//= channels#P13-no-starvation
//= type=test
#[test]
fn replays_of_one_hosts_requests_over_udp_hold_nothing_that_anothers_ops_need() {
    let mut scene = Scene::over_udp();
    for (name, whats) in floods() {
        scene.run_beside(name, &whats);
    }
}

//= channels#P13-no-starvation
//= type=test
#[test]
#[ignore = "needs root: cargo xtask test"]
fn replays_of_one_hosts_requests_over_xdp_hold_nothing_that_anothers_ops_need() {
    let mut scene = Scene::over_xdp();
    for (name, whats) in floods() {
        scene.run_beside(name, &whats);
    }
}
