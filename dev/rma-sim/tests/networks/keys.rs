//! Keys that rotate under load: an owner and its clients on many networks with faults, with the
//! shipped service, rotation, caches and keyed executors.
//!
//! `RMA_SIM_SEEDS` says how many, `RMA_SIM_FIRST` where to begin; `RMA_SIM_SEED` runs one of them.
//!
//! Two phases: in the first anything may fail, and what ends well is true to the byte; in the
//! second the faults are gone, keys go on changing, and every call is OK.

use core::time::Duration;
use std::sync::Arc;

use rma_core::{
    addr::Pid,
    executor::{CallStatus, CommandExecutor, RetryPolicy},
    op::{OpStatus, OpType},
    region::{Permissions, RegisteredRegion},
    time::Instant,
};
use rma_keys::{
    cache::{Fetch, GrantCache, RingId, Source},
    catalog::Region as Published,
    epoch::Life,
    keyed::{KeyedCall, KeyedExecutor, KeyedOutcome, KeyedPiece, KeyedStatus},
    message::reply::Reply,
    ops::OpSet,
    peer::{Peer, Serial},
    policy::Policy,
    ring::Holder,
    rotation::{Plan, Rotation, Schedule, Todo, Turn, Way},
    secret::RegionSecret,
    service::{Service, ServiceConfig},
    time::{Now, WallTime},
};
use rma_lab::{Pattern, evidence};
use rma_shm::Region;
use rma_sim::{
    hosts::{network::Network, options::NetworkOptions},
    net::frame::NodeId,
    prng::{Chance, Prng},
};

/// How many seeds are run, unless RMA_SIM_SEEDS says otherwise.
const SEEDS: u64 = 400;

/// How many calls each client makes in each phase.
const CALLS: u32 = 12;

const OWNER: NodeId = NodeId(0);
const CLIENTS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];
const PID: Pid = Pid(7);
const LEN: u64 = 64 << 10;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: it must be a number")))
}

/// The results of some runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Report {
    ok: u64,
    failed: u64,
    bytes: u64,
    rotated: u64,
    withdrawn: u64,
    rekeyed: u64,
    fetches: u64,
    lost: u64,
    spurious: u64,
}

struct Client {
    node: NodeId,
    executor: KeyedExecutor,
    cache: GrantCache,
    source: Source,
    ring: RingId,
    local: RegisteredRegion,
    peer: Peer,
    /// A request on its way, or its reply, and the true time at which it arrives.
    fetch: Option<(Instant, Fetch, Option<Reply>)>,
    /// The offset and length of the read under way.
    reads: Option<(u64, u64)>,
    left: u32,
    /// When it looks again, in true time.
    wakes_at: Instant,
}

struct World {
    network: Network,
    service: Service<Policy>,
    rotation: Rotation,
    region: RegisteredRegion,
    clients: Vec<Client>,
    prng: Prng,
    pattern: Pattern,
    owner_wakes_at: Instant,
    is_healed: bool,
    report: Report,
}

fn fresh(prng: &mut Prng) -> RegionSecret {
    let mut octets = [0; 16];
    prng.fill(&mut octets);
    RegionSecret::new(&mut octets)
}

const fn wall(boot: Instant) -> Now {
    Now { boot, wall: WallTime::from_unix_millis(0) }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed).fork(0x6b65);
        let mut network = Network::new(NetworkOptions::from_seed(seed, 4));
        let secret = fresh(&mut prng);
        let memory = Arc::new(Region::new(LEN as usize).expect("64 KiB"));
        let region = network.register_under(
            &secret.region_key(),
            (OWNER, PID),
            memory,
            Permissions::READ,
            None,
        );
        let pattern = Pattern::new(seed);
        pattern.fill_region(&region);
        let allow =
            "[[allow]]\nregion = \"kv\"\nidentity = \"spiffe://a/client\"\nops = [\"read\"]";
        let policy = Policy::parse(allow).expect("a policy");
        let mut service = Service::new(Life([1; 8]), policy, ServiceConfig::default());
        let schedule = Schedule::every(Duration::from_millis(prng.between(100, 200)));
        let plan = Plan { way: Way::Host, schedule, seed };
        let now = wall(network.local_now(OWNER));
        let mut draw = || fresh(&mut prng);
        let mut turn = Turn { now, service: &mut service, fresh: &mut draw, events: Vec::new() };
        let responders = network.address(OWNER).into();
        let published = Published { responders, id: region.id(), len: LEN };
        let name = "kv".parse().expect("a name");
        let rotation =
            Rotation::publish(&mut turn, name, published, &secret, plan).expect("it makes sense");
        let clients = CLIENTS.map(|node| Client::new(&mut network, node, seed)).into();
        Self {
            network,
            service,
            rotation,
            region,
            clients,
            prng,
            pattern,
            owner_wakes_at: Instant::ZERO,
            is_healed: false,
            report: Report::default(),
        }
    }

    /// The owner's software has its turn.
    fn owner(&mut self) {
        if !self.network.is_running(OWNER) {
            return;
        }
        let Self { network, service, rotation, region, prng, .. } = self;
        let now = wall(network.local_now(OWNER));
        let chance = |prng: &mut Prng, per_mille: u64| prng.below(1000) < per_mille;
        let (on_command, withdraws) = (chance(prng, 30), chance(prng, 10));
        let mut draw = || fresh(prng);
        let mut turn = Turn { now, service, fresh: &mut draw, events: Vec::new() };
        rotation.handle_timeout(&mut turn).expect("published");
        if on_command {
            rotation.rotate(&mut turn).expect("published");
        }
        if withdraws {
            rotation.withdraw(&mut turn).expect("published");
        }
        // As much as there is to do: a host answers at once.
        let until = loop {
            match rotation.poll_todo(now.boot, turn.service) {
                Todo::Wait(until) => break until,
                Todo::Rekey { to, secret, .. } => {
                    network.rekey(region, &secret.region_key());
                    rotation.handle_rekey(&mut turn, to, OpStatus::Ok).expect("published");
                }
                Todo::Probe { .. } => panic!("the owner's own host is never in doubt"),
            }
        };
        let until = until.expect("it rotates for ever");
        // Now and then somebody commands something.
        let soon = network.now() + Duration::from_millis(5);
        self.owner_wakes_at = network.wake_at(OWNER, until).min(soon);
    }

    /// A client's software has its turn.
    fn client(&mut self, i: usize) {
        let Self { network, clients, prng, pattern, report, .. } = self;
        let client = &mut clients[i];
        if !network.is_running(client.node) {
            return;
        }
        let now = network.local_now(client.node);
        if client.reads.is_none() && client.left > 0 {
            client.left -= 1;
            client.read(now, prng);
        }
        client.executor.poll(now, &mut client.cache);
        while let Some(outcome) = client.executor.poll_outcome() {
            client.check(&outcome, pattern, self.is_healed, report);
        }
        if client.fetch.is_none()
            && let Some(fetch) = client.cache.poll_fetch(now)
        {
            client.fetch = Some((arrival(network, prng), fetch, None));
        }
        network.take_commands(client.node);
        let times = [client.executor.poll_timeout(), client.cache.poll_timeout()];
        let next = times.into_iter().flatten().min();
        let pause = network.now() + Duration::from_micros(100 + prng.below(20_000));
        let next = next.map(|local| network.wake_at(client.node, local));
        client.wakes_at = match next {
            Some(next) if client.reads.is_some() => next,
            Some(next) => next.min(pause),
            None => pause,
        };
    }

    /// A request or a reply has arrived.
    fn arrive(&mut self, i: usize) {
        let Self { network, clients, prng, service, is_healed, .. } = self;
        let client = &mut clients[i];
        let (_, fetch, reply) = client.fetch.take().expect("it has arrived");
        let now = network.local_now(client.node);
        let is_lost = !*is_healed && prng.chance(Chance::ppm(50_000));
        match reply {
            _ if is_lost => client.cache.handle_lost(now, client.source, fetch.number),
            Some(reply) => client.cache.handle_reply(now, client.source, fetch.number, reply),
            None => {
                let now = wall(network.local_now(OWNER));
                let reply = service.answer(now, &client.peer, &fetch.request).reply;
                client.fetch = Some((arrival(network, prng), fetch, Some(reply)));
            }
        }
        client.wakes_at = network.now();
    }

    /// Runs until all clients have made their calls.
    fn run(&mut self) {
        self.clients.iter_mut().for_each(|it| it.left = CALLS);
        let last = self.network.now() + Duration::from_secs(600);
        while self.clients.iter().any(|it| it.left > 0 || it.reads.is_some()) {
            let now = self.network.now();
            assert!(now < last, "{}: calls that never end", self.network.options());
            let wakes = self.clients.iter().map(|it| it.wakes_at);
            let fetches = self.clients.iter().filter_map(|it| Some(it.fetch.as_ref()?.0));
            let next = wakes.chain(fetches).chain([self.owner_wakes_at]).min();
            let next = next.expect("somebody has something to do").max(now);
            if self.network.next_at().is_some_and(|at| at <= next) {
                let node = self.network.step();
                if let Some(i) = self.clients.iter().position(|it| Some(it.node) == node) {
                    self.client(i);
                }
                continue;
            }
            if next > now {
                self.network.advance_to(next);
            }
            self.software(next);
        }
    }

    /// All whose time has come have their turns.
    fn software(&mut self, now: Instant) {
        if self.owner_wakes_at <= now {
            // A stopped owner looks again later.
            self.owner_wakes_at = now + Duration::from_micros(50);
            self.owner();
        }
        for i in 0..self.clients.len() {
            if self.clients[i].fetch.as_ref().is_some_and(|(at, ..)| *at <= now) {
                self.arrive(i);
            }
            if self.clients[i].wakes_at <= now {
                self.clients[i].wakes_at = now + Duration::from_micros(50);
                self.client(i);
            }
        }
    }
}

/// When something that is sent to or by the service now arrives.
fn arrival(network: &Network, prng: &mut Prng) -> Instant {
    network.now() + Duration::from_micros(20 + prng.magnitude(5_000))
}

impl Client {
    fn new(network: &mut Network, node: NodeId, seed: u64) -> Self {
        let portal = network.portal(node, 32, PID);
        let executor =
            CommandExecutor::new(portal, network.executor()).expect("settings that work");
        let address = network.address(node);
        let holder = Holder { initiators: address.into(), pid: PID };
        let mut cache = GrantCache::new(holder, seed ^ u64::from(node.0));
        let source = cache.source();
        let read = OpSet::NONE.with(OpType::Read);
        let ring = cache.region(source, "kv".parse().expect("a name"), read).expect("room");
        let memory = Arc::new(Region::new(LEN as usize).expect("64 KiB"));
        let peer = Peer {
            identity: "spiffe://a/client".parse().expect("an identity"),
            serial: Serial::new(&[1]).expect("short"),
            not_after: WallTime::from_unix_millis(i64::MAX),
            address,
        };
        Self {
            node,
            executor: KeyedExecutor::new(executor),
            cache,
            source,
            ring,
            local: network.register((node, PID), memory, Permissions::NONE, None),
            peer,
            fetch: None,
            reads: None,
            left: 0,
            wakes_at: Instant::ZERO,
        }
    }

    fn read(&mut self, now: Instant, prng: &mut Prng) {
        let len = 1 + prng.magnitude(LEN - 1);
        let from = prng.below(LEN - len + 1);
        let piece = KeyedPiece {
            ring: self.ring,
            remote_offset: from,
            local: self.local.clone(),
            local_offset: from,
            len,
        };
        let call = KeyedCall {
            op_type: OpType::Read,
            pieces: vec![piece],
            class: None,
            retry: RetryPolicy::DEFAULT,
            deadline: None,
        };
        self.local.write(from, &vec![0; len as usize]).expect("within it");
        self.reads = Some((from, len));
        self.executor.submit(now, &mut self.cache, call);
    }

    fn check(
        &mut self,
        outcome: &KeyedOutcome,
        pattern: &Pattern,
        is_healed: bool,
        report: &mut Report,
    ) {
        let (from, len) = self.reads.take().expect("a call was made");
        let missing: u64 = outcome.missing.iter().map(|it| it.len).sum();
        assert_eq!(missing + outcome.bytes_done, len, "each byte is told of: {outcome:?}");
        report.rekeyed += u64::from(outcome.rekeyed);
        report.bytes += outcome.bytes_done;
        let mut at = from;
        // Bytes that are not told as missing are there, whatever became of the call.
        for (offset, len) in outcome.missing.iter().map(|it| (it.offset, it.len)).chain([(len, 0)])
        {
            let mut bytes = vec![0; (from + offset - at) as usize];
            self.local.read(at, &mut bytes).expect("within it");
            assert_eq!(pattern.first_difference(at, &bytes), None, "{outcome:?}");
            at = from + offset + len;
        }
        match outcome.status {
            KeyedStatus::Ended(CallStatus::Ok) => report.ok += 1,
            KeyedStatus::Ended(CallStatus::Failed(OpStatus::RemoteAuthenticationFailure))
            | KeyedStatus::GaveUp(_)
            | KeyedStatus::Refused(_) => panic!("its key was at fault: {outcome:?}"),
            _ => {
                assert!(!is_healed, "without faults: {outcome:?}");
                report.failed += 1;
            }
        }
    }
}

fn run_seed(seed: u64) -> Report {
    let mut world = World::new(seed);
    world.run();
    world.network.heal();
    world.is_healed = true;
    // Frames on their way may still do harm.
    let quiet = world.network.now() + Duration::from_secs(1);
    while world.network.now() < quiet {
        world.clients.iter_mut().for_each(|it| it.left = 0);
        let next = world.owner_wakes_at.max(world.network.now());
        match world.network.next_at() {
            Some(at) if at <= next => drop(world.network.step()),
            _ => {
                world.network.advance_to(next);
                world.software(next);
            }
        }
    }
    world.run();
    let (counters, mut report) = (world.rotation.counters(), world.report);
    (report.rotated, report.withdrawn) = (counters.rotated, counters.withdrawn);
    for it in &world.clients {
        let counters = it.cache.counters();
        report.fetches += counters.fetches;
        report.lost += counters.lost;
        report.spurious += counters.spurious;
    }
    report
}

#[test]
fn transfers_outlast_rotations_on_networks_with_faults() {
    let one = variable("RMA_SIM_SEED").map(|seed| seed..seed + 1);
    let first = variable("RMA_SIM_FIRST").unwrap_or(0);
    let all = first..first + variable("RMA_SIM_SEEDS").unwrap_or(SEEDS);
    let is_whole = one.is_none() && all.end - all.start >= SEEDS;
    let mut total = Report::default();
    for seed in one.unwrap_or(all) {
        println!("seed {seed}");
        let Report { ok, failed, bytes, rotated, withdrawn, rekeyed, fetches, lost, spurious } =
            run_seed(seed);
        total.ok += ok;
        total.failed += failed;
        total.bytes += bytes;
        total.rotated += rotated;
        total.withdrawn += withdrawn;
        total.rekeyed += rekeyed;
        total.fetches += fetches;
        total.lost += lost;
        total.spurious += spurious;
    }
    evidence::show(format_args!("keys under load: {total:?}"));
    if is_whole {
        let Report { ok, rotated, withdrawn, rekeyed, fetches, lost, .. } = total;
        let reached = [ok, rotated, withdrawn, rekeyed, fetches, lost];
        assert!(reached.iter().all(|&it| it > 0), "{total:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(run_seed(5), run_seed(5));
}
