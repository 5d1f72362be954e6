//! An owner, its responder, two clients and what is under way between them, with the shipped state
//! machines inside. One world is one history: it is made anew and played again for each step.

use core::time::Duration;
use std::hash::{DefaultHasher, Hash, Hasher};

use rma_core::{
    addr::{LocalAddresses, Pid},
    op::{OpStatus, OpType},
    region::RegionId,
    time::Instant,
};
use rma_keys::{
    cache::{Fetch, GrantCache, RingId},
    catalog::Region,
    epoch::{Epoch, Life},
    message::reply::Reply,
    name::RegionName,
    ops::OpSet,
    peer::{Peer, Serial},
    policy::Policy,
    ring::{Holder, Standing, Verdict},
    rotation::{Plan, Rotation, Schedule, Todo, Turn},
    secret::RegionSecret,
    service::{Service, ServiceConfig},
    time::{Now, WallTime},
};

use crate::script::{Flaw, Script};

/// One step of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Time passes, to the next moment at which somebody has something to do.
    Tick,
    /// The owner rotates on command.
    Rotate,
    /// The owner shuts the second client out.
    Withdraw,
    /// The owner's driver does what it is told.
    Drive,
    /// The driver's task ends: as it should, without a trace, with its answer lost, or refused by
    /// an attacker.
    Driven(How),
    /// A client begins a call, or goes on with it.
    Issue(usize),
    /// A client's op ends.
    Ends(usize, How),
    /// A client's request reaches the service, and is answered.
    Fetch(usize),
    /// The answer reaches the client.
    Answer(usize),
    /// The answer is lost.
    Lose(usize),
}

/// The end of something that goes over the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum How {
    Fairly,
    /// On its way there: nothing was done.
    LostBefore,
    /// On its way back.
    LostAfter,
    Forged,
}

/// The task of the driver.
#[derive(Clone, Copy, Debug)]
enum Driving {
    Rekey { under: Epoch, to: Epoch },
    Probe { under: Epoch },
}

/// One client, with one call at a time.
struct Client {
    cache: GrantCache,
    ring: RingId,
    peer: Peer,
    fetch: Option<(Fetch, Reply)>,
    calls_left: u8,
    call: Option<Call>,
    /// The latest epoch under which one of its ops was OK.
    proven: Option<Epoch>,
    /// All epochs that it was ever given a key of.
    given: Vec<Epoch>,
    /// Whether it has used a key from before one that was right.
    went_back: bool,
    is_shut_out: bool,
}

/// A call that is not over.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// The epoch of its op's key; `None` while it waits for one.
    under: Option<Epoch>,
    retries: u8,
    /// How many of its ops an attacker has refused.
    forged: u8,
}

pub(crate) struct World {
    script: Script,
    now: Now,
    service: Service<Policy>,
    rotation: Rotation,
    /// The epoch that the responder goes by.
    responder: Epoch,
    driving: Option<Driving>,
    clients: [Client; 2],
    drawn: u8,
    rotations: u8,
    withdrawn: bool,
    ticks: u8,
    forged: u8,
    lost: u8,
    /// How often a forged notice cost a call more than two retries.
    costly: u8,
}

const LIFE: Life = Life([7; 8]);

fn name() -> RegionName {
    "kv".parse().expect("a name")
}

fn policy(second: bool) -> Policy {
    let rule = |client| {
        format!(
            "[[allow]]\nregion = \"kv\"\nidentity = \"spiffe://a/{client}\"\nops = [\"read\"]\n"
        )
    };
    let text = rule(0) + &if second { rule(1) } else { String::new() };
    Policy::parse(&text).expect("a policy")
}

fn address(octet: u8) -> LocalAddresses {
    let mut addresses = LocalAddresses::default();
    addresses.insert([192, 0, 2, octet].into());
    addresses
}

impl Client {
    fn new(i: u8, calls: u8) -> Self {
        let holder = Holder { initiators: address(i + 1), pid: Pid(1) };
        let mut cache = GrantCache::new(holder, i.into());
        let source = cache.source();
        let read = OpSet::NONE.with(OpType::Read);
        let ring = cache.region(source, name(), read).expect("room");
        let peer = Peer {
            identity: format!("spiffe://a/{i}").parse().expect("an identity"),
            serial: Serial::new(&[1]).expect("short"),
            not_after: WallTime::from_unix_millis(i64::MAX),
            address: [192, 0, 2, i + 1].into(),
        };
        Self {
            cache,
            ring,
            peer,
            fetch: None,
            calls_left: calls,
            call: None,
            proven: None,
            given: Vec::new(),
            went_back: false,
            is_shut_out: false,
        }
    }

    /// Whether it waits for time to pass: for a fetch that may not go yet.
    fn waits(&mut self, now: Instant) -> bool {
        self.call.is_some_and(|it| it.under.is_none())
            && self.cache.standing(now, self.ring) == Standing::Waiting
            && self.cache.poll_timeout().is_some()
    }
}

impl World {
    pub(crate) fn new(script: Script) -> Self {
        let mut service = Service::new(LIFE, policy(true), ServiceConfig::default());
        let now = Now { boot: Instant::from_nanos(1), wall: WallTime::from_unix_millis(0) };
        let schedule = Schedule::every(Duration::from_secs(3600));
        let plan = Plan { way: script.way, schedule, seed: 1 };
        let region = Region { responders: address(9), id: RegionId::from_bits(1), len: 64 };
        let mut fresh = || unreachable!("the first key is given");
        let mut turn = Turn { now, service: &mut service, fresh: &mut fresh, events: Vec::new() };
        let first = RegionSecret::new(&mut [1; 16]);
        let rotation = Rotation::publish(&mut turn, name(), region, &first, plan);
        let rotation = rotation.expect("it makes sense");
        let [a, b] = script.calls;
        Self {
            script,
            now,
            responder: Epoch { life: LIFE, number: 1 },
            driving: None,
            clients: [Client::new(0, a), Client::new(1, b)],
            service,
            rotation,
            drawn: 1,
            rotations: 0,
            withdrawn: false,
            ticks: 0,
            forged: 0,
            lost: 0,
            costly: 0,
        }
    }

    /// Returns a digest of the world, but for keys.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let Self { now, rotation, responder, driving, rotations, withdrawn, .. } = self;
        let (ticks, forged, lost) = (self.ticks, self.forged, self.lost);
        let catalog = self.service.catalog();
        format!("{now:?}{rotation:?}{catalog:?}{responder:?}{driving:?}{rotations}{withdrawn}")
            .hash(&mut hasher);
        format!("{ticks},{forged},{lost}{}", self.costly).hash(&mut hasher);
        for it in &self.clients {
            let Client { cache, fetch, calls_left, call, proven, given, .. } = it;
            format!("{cache:?}{fetch:?}{calls_left}{call:?}{proven:?}{given:?}").hash(&mut hasher);
            (it.went_back, it.is_shut_out).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn turn(&mut self, act: impl FnOnce(&mut Rotation, &mut Turn<'_, Policy>)) {
        let Self { now, service, rotation, drawn, .. } = self;
        let mut fresh = || {
            *drawn += 1;
            RegionSecret::new(&mut [*drawn; 16])
        };
        act(rotation, &mut Turn { now: *now, service, fresh: &mut fresh, events: Vec::new() });
    }

    /// Collects the actions that can happen next. To be asked of a world that is not used any
    /// further.
    pub(crate) fn actions(mut self, actions: &mut Vec<Action>) {
        let (now, script) = (self.now.boot, self.script);
        let may_lose = self.lost < script.lost;
        let may_forge = self.forged < script.forged;
        let mut ends = |of: &dyn Fn(How) -> Action| {
            actions.push(of(How::Fairly));
            if may_lose {
                actions.extend([of(How::LostBefore), of(How::LostAfter)]);
            }
            if may_forge {
                actions.push(of(How::Forged));
            }
        };
        if self.driving.is_some() {
            ends(&Action::Driven);
        }
        for i in 0..2 {
            if self.clients[i].call.is_some_and(|it| it.under.is_some()) {
                ends(&|how| Action::Ends(i, how));
            }
        }
        let (drives, next_time) = self.next_time();
        if drives {
            actions.push(Action::Drive);
        }
        let entry = self.service.catalog().find(&name()).expect("published");
        let mut waits = entry.next().is_some() && self.driving.is_none();
        if self.rotations < script.rotations {
            actions.push(Action::Rotate);
        }
        if script.withdraws && !self.withdrawn {
            actions.push(Action::Withdraw);
        }
        for (i, client) in self.clients.iter_mut().enumerate() {
            if client.fetch.is_some() {
                actions.push(Action::Answer(i));
                if may_lose {
                    actions.push(Action::Lose(i));
                }
            }
            waits |= client.waits(now);
            if client.cache.poll_fetch(now).is_some() {
                actions.push(Action::Fetch(i));
            }
            let is_idle = client.call.is_none() && client.calls_left > 0;
            let is_ready = client.call.is_some_and(|it| it.under.is_none())
                && client.cache.standing(now, client.ring) != Standing::Waiting;
            if is_idle || is_ready {
                actions.push(Action::Issue(i));
            }
        }
        let may_pass = self.ticks < script.ticks || (waits && actions.is_empty());
        if may_pass && !drives && next_time.is_some() {
            actions.push(Action::Tick);
        }
    }

    /// Whether the driver has something to do, and when somebody will have.
    fn next_time(&mut self) -> (bool, Option<Instant>) {
        let now = self.now.boot;
        let (drives, todo) = match self.rotation.poll_todo(now, &self.service) {
            Todo::Wait(until) => (false, until),
            Todo::Rekey { .. } | Todo::Probe { .. } => (true, None),
        };
        let caches = self.clients.iter().map(|it| it.cache.poll_timeout());
        (drives, caches.chain([todo]).flatten().filter(|&at| at > now).min())
    }

    pub(crate) fn step(&mut self, action: Action) {
        let boot = self.now.boot;
        match action {
            Action::Tick => {
                self.ticks += 1;
                self.now.boot = self.next_time().1.expect("somebody waits");
                self.turn(|rotation, turn| rotation.handle_timeout(turn).expect("published"));
            }
            Action::Rotate => {
                self.rotations += 1;
                self.turn(|rotation, turn| rotation.rotate(turn).expect("published"));
            }
            Action::Withdraw => {
                self.withdrawn = true;
                self.clients[1].is_shut_out = true;
                self.service.reload(self.now, policy(false));
                let by_rotation = self.script.makes(Flaw::WithdrawnByRotation);
                self.turn(|rotation, turn| {
                    let done =
                        if by_rotation { rotation.rotate(turn) } else { rotation.withdraw(turn) };
                    done.expect("published");
                });
            }
            Action::Drive => {
                self.driving = match self.rotation.poll_todo(boot, &self.service) {
                    Todo::Wait(_) => None,
                    Todo::Rekey { under, to, .. } => Some(Driving::Rekey { under, to }),
                    Todo::Probe { under } => Some(Driving::Probe { under }),
                };
            }
            Action::Driven(how) => self.driven(how),
            Action::Issue(i) => self.issue(i),
            Action::Ends(i, how) => self.ends(i, how),
            Action::Fetch(i) => {
                let client = &mut self.clients[i];
                // Whoever waits looks again when time has passed.
                let _ = client.waits(boot);
                let fetch = client.cache.poll_fetch(boot).expect("it asks");
                let reply = self.service.answer(self.now, &client.peer, &fetch.request).reply;
                client.fetch = Some((fetch, reply));
            }
            Action::Answer(i) => {
                let client = &mut self.clients[i];
                let (fetch, reply) = client.fetch.take().expect("it is under way");
                if let Reply::Answers(answers) = &reply
                    && let [rma_keys::message::reply::Answer::Granted(granted)] = &answers[..]
                {
                    client.given.push(granted.present.epoch);
                    client.given.extend(granted.next.as_ref().map(|it| it.epoch));
                }
                client.cache.handle_reply(boot, fetch.source, fetch.number, reply);
            }
            Action::Lose(i) => {
                self.lost += 1;
                let (fetch, _) = self.clients[i].fetch.take().expect("it is under way");
                if !self.script.makes(Flaw::LossUntold) {
                    self.clients[i].cache.handle_lost(boot, fetch.source, fetch.number);
                }
            }
        }
    }

    /// Returns the status of an op under the key of `under` at the responder.
    fn outcome(&mut self, under: Epoch, how: How) -> OpStatus {
        self.lost += u8::from(matches!(how, How::LostBefore | How::LostAfter));
        self.forged += u8::from(how == How::Forged);
        match how {
            How::LostBefore | How::LostAfter => OpStatus::Timeout,
            How::Fairly if self.responder == under => OpStatus::Ok,
            How::Fairly | How::Forged => OpStatus::RemoteAuthenticationFailure,
        }
    }

    fn driven(&mut self, how: How) {
        match self.driving.take().expect("it is under way") {
            Driving::Rekey { under, to } => {
                let mut status = self.outcome(under, how);
                if matches!(how, How::Fairly | How::LostAfter) && self.responder == under {
                    self.responder = to;
                }
                if self.script.makes(Flaw::TimeoutIsOk) && status == OpStatus::Timeout {
                    status = OpStatus::Ok;
                }
                let is_refused = status == OpStatus::RemoteAuthenticationFailure;
                if self.script.makes(Flaw::RefusalIsNack) && is_refused {
                    status = OpStatus::Nack;
                }
                self.turn(|rotation, turn| {
                    rotation.handle_rekey(turn, to, status).expect("published");
                });
            }
            Driving::Probe { under } => {
                let status = self.outcome(under, how);
                self.turn(|rotation, turn| {
                    rotation.handle_probe(turn, under, status).expect("published");
                });
            }
        }
    }

    fn issue(&mut self, i: usize) {
        let boot = self.now.boot;
        let client = &mut self.clients[i];
        if client.call.is_none() {
            client.calls_left -= 1;
            client.call = Some(Call { under: None, retries: 0, forged: 0 });
        }
        match client.cache.standing(boot, client.ring) {
            Standing::Waiting => {}
            Standing::GaveUp(_) => client.call = None,
            Standing::Ready => {
                let keyed = client.cache.grant(boot, client.ring, OpType::Read).expect("ready");
                let is_before = |it: Epoch| keyed.epoch.number < it.number;
                client.went_back |= client.proven.is_some_and(is_before);
                client.call.as_mut().expect("begun").under = Some(keyed.epoch);
            }
        }
    }

    fn ends(&mut self, i: usize, how: How) {
        let under = self.clients[i].call.and_then(|it| it.under).expect("it is under way");
        let status = self.outcome(under, how);
        let (boot, script) = (self.now.boot, self.script);
        let client = &mut self.clients[i];
        let ok = status == OpStatus::Ok;
        if ok {
            client.proven = Some(
                client.proven.map_or(under, |it| if it.number < under.number { under } else { it }),
            );
        }
        let call = client.call.as_mut().expect("it is under way");
        call.forged += u8::from(how == How::Forged);
        let verdict = if ok && script.makes(Flaw::OkUntold) {
            Verdict::Pass
        } else {
            client.cache.on_outcome(boot, client.ring, under, status)
        };
        if status == OpStatus::RemoteAuthenticationFailure && script.makes(Flaw::DropsOnNotice) {
            // An answer under the other key is what ends a key.
            if let Some(other) = client.cache.grant(boot, client.ring, OpType::Read) {
                let told = client.cache.on_outcome(boot, client.ring, other.epoch, OpStatus::Ok);
                assert_eq!(told, Verdict::Pass);
            }
        }
        match verdict {
            Verdict::Pass if ok => client.call = None,
            Verdict::Pass => call.under = None,
            Verdict::Retry | Verdict::Wait => {
                (call.under, call.retries) = (None, call.retries + 1);
                let most = 2 * (call.forged + self.drawn - 1);
                self.costly += u8::from(call.retries > most);
            }
            Verdict::GiveUp(_) => client.call = None,
        }
    }

    /// Whether the catalog has the key that the responder goes by.
    pub(crate) fn catalog_knows(&self) -> bool {
        let entry = self.service.catalog().find(&name()).expect("published");
        let next = entry.next().map(|it| it.epoch());
        entry.present().epoch() == self.responder || next == Some(self.responder)
    }

    /// Whether no client has used a key from before one that was right.
    pub(crate) fn goes_forward(&self) -> bool {
        self.clients.iter().all(|it| !it.went_back)
    }

    /// Whether forged notices and rotations have cost each call two retries each at most.
    pub(crate) const fn is_cheap(&self) -> bool {
        self.costly == 0
    }

    /// Whether the owner does not take too many steps.
    pub(crate) fn is_brief(&self) -> bool {
        let counters = self.rotation.counters();
        let begun = counters.rotated + 1;
        counters.rekeys + counters.probes <= begun + 2 * u64::from(self.lost + self.forged)
    }

    /// Whether the owner's region is out of the middle of a rotation, and nobody waits.
    pub(crate) fn is_over(&self) -> bool {
        let entry = self.service.catalog().find(&name()).expect("published");
        entry.next().is_none()
            && self.clients.iter().all(|it| it.call.is_none() && it.calls_left == 0)
    }

    /// Whether nobody who was shut out has a key of an epoch that began afterwards.
    pub(crate) fn is_shut(&self) -> bool {
        let entry = self.service.catalog().find(&name()).expect("published");
        let is_out = |it: &&Client| it.is_shut_out;
        // Until the withdrawal is through, what it had holds.
        let is_through = entry.next().is_none() && self.driving.is_none();
        let mut out = self.clients.iter().filter(is_out);
        !is_through || out.all(|it| !it.given.contains(&self.responder))
    }
}
