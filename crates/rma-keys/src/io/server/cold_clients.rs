//! A service that has started again, and its 20,000 clients that come at once: the shipped
//! admission, rates and waiting times, on a machine whose work takes the time that it takes here.
//! No sockets and no clock; the same seed gives the same run.
//!
//! | model | stands for |
//! |---|---|
//! | `Costs` | what one core takes: together 0.45 ms for a client that comes, is let in and answered |
//! | `backlog` | the system's queue of connections; who finds it full sends its SYN again, after 1, 2, 4 s |
//! | `turn` | a turn of the loop: who is open, then handshakes, then 64 new connections |
//! | `Event::Fails` | a connection that was closed, or has taken 5 s: again after `Backoff` |

use core::{cmp::Reverse, time::Duration};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use rma_core::{
    addr::{HostAddr, Pid},
    op::OpType,
    region::RegionId,
    time::Instant,
};
use rma_lab::evidence;

use crate::{
    catalog::{Region, Term},
    epoch::Life,
    io::{
        client::backoff::Backoff,
        server::admission::{Admission, Places, Verdict},
    },
    jitter::Jitter,
    message::{
        reply::{Refusal, Reply},
        request::{Request, Wanted},
    },
    ops::OpSet,
    peer::{Peer, Serial},
    policy::Policy,
    secret::RegionSecret,
    service::{Service, ServiceConfig},
    time::{Now, WallTime},
};

const CLIENTS: usize = 20_000;

/// In how much time all must be served.
const SOON: Duration = Duration::from_secs(15);

/// One way.
const WIRE: Duration = Duration::from_micros(100);

/// The time that a client computes in its handshake, on a core of its own.
const CLIENT: Duration = Duration::from_micros(400);

/// The system's queue, as long as Linux has it.
const BACKLOG: usize = 4096;

/// As the loop has it.
const ACCEPTS: usize = 64;

/// As clients and services have it.
const CONNECT_TIME: Duration = Duration::from_secs(5);
const HANDSHAKE_TIME: Duration = Duration::from_secs(2);

struct Costs {
    accept: Duration,
    hello: Duration,
    finish: Duration,
    answer: Duration,
}

const COSTS: Costs = Costs {
    accept: Duration::from_micros(20),
    hello: Duration::from_micros(190),
    finish: Duration::from_micros(190),
    answer: Duration::from_micros(50),
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The client connects.
    Connects(usize),
    /// Its SYN arrives, the so many-th of this try.
    Syn {
        client: usize,
        attempt: u32,
        sent: u32,
    },
    /// The client's next octets arrive at the service.
    Arrives(u64),
    /// The client's try has failed.
    Fails {
        client: usize,
        attempt: u32,
    },
    /// The client asks again.
    Asks {
        client: usize,
    },
    Turn,
}

#[derive(Debug, Default)]
struct Client {
    /// Of connections, to tell what is late from what is not.
    attempt: u32,
    backoff: Backoff,
    connection: Option<u64>,
    served: Option<Instant>,
}

#[derive(Debug)]
struct Connection {
    client: usize,
    attempt: u32,
    accepted: Instant,
    /// How far its handshake is: nothing said, hello, open.
    stage: u8,
}

struct World {
    now: Instant,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    next: u64,
    jitter: Jitter,
    hosts: usize,
    clients: Vec<Client>,
    backlog: VecDeque<(usize, u32, Instant)>,
    connections: BTreeMap<u64, Connection>,
    ready: BTreeSet<u64>,
    deadlines: BTreeSet<(Instant, u64)>,
    admission: Admission,
    service: Service<Policy>,
    is_turning: bool,
    left: usize,
    replaced: u64,
    refused: u64,
}

fn wall(boot: Instant) -> Now {
    Now { boot, wall: WallTime::from_unix_millis(0) }
}

impl World {
    fn new(hosts: usize, tries: u32, seed: u64) -> Self {
        let policy =
            "[[allow]]\nregion = \"kv/*\"\nidentity = \"spiffe://a/client\"\nops = [\"read\"]";
        let policy = Policy::parse(policy).unwrap();
        let mut service = Service::new(Life([1; 8]), policy, ServiceConfig::default());
        let now = Instant::ZERO + Duration::from_secs(100);
        let term = Term {
            announce_at: now + Duration::from_secs(3000),
            ends_at: now + Duration::from_secs(3600),
        };
        let responders = HostAddr::from([192, 0, 2, 1]).into();
        for octet in 0..4 {
            let name = format!("kv/{octet}").parse().unwrap();
            let region = Region { responders, id: RegionId::from_bits(octet), len: 4096 };
            let secret = RegionSecret::new(&mut [octet as u8; 16]);
            service.publish(wall(now), name, region, &secret, term).unwrap();
        }
        let client = || Client { backoff: Backoff(tries), ..Client::default() };
        let mut world = Self {
            now,
            events: BinaryHeap::new(),
            next: 0,
            jitter: Jitter(seed),
            hosts,
            clients: (0..CLIENTS).map(|_| client()).collect(),
            backlog: VecDeque::new(),
            connections: BTreeMap::new(),
            ready: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            admission: Admission::new(Places::default()),
            service,
            is_turning: false,
            left: CLIENTS,
            replaced: 0,
            refused: 0,
        };
        for client in 0..CLIENTS {
            let pause = match tries {
                // They have just been started.
                0 => Duration::ZERO,
                _ => world.clients[client].backoff.next(world.jitter.next()),
            };
            world.after(pause, Event::Connects(client));
        }
        world
    }

    fn after(&mut self, pause: Duration, event: Event) {
        self.at(self.now + pause, event);
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.next += 1;
        self.events.push(Reverse((at, self.next, event)));
    }

    fn address(&self, client: usize) -> HostAddr {
        let [.., high, low] = (client % self.hosts).to_be_bytes();
        [10, 0, high, low].into()
    }

    fn wake(&mut self) {
        if !core::mem::replace(&mut self.is_turning, true) {
            self.at(self.now, Event::Turn);
        }
    }

    fn run(&mut self) -> Duration {
        let began = self.now;
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            self.now = at;
            match event {
                Event::Connects(client) => {
                    let it = &mut self.clients[client];
                    it.attempt += 1;
                    let attempt = it.attempt;
                    self.after(WIRE, Event::Syn { client, attempt, sent: 0 });
                    self.after(CONNECT_TIME, Event::Fails { client, attempt });
                }
                Event::Syn { client, attempt, sent } => self.syn(client, attempt, sent),
                Event::Arrives(key) => {
                    if self.connections.contains_key(&key) {
                        self.ready.insert(key);
                        self.wake();
                    }
                }
                Event::Fails { client, attempt } => self.fails(client, attempt),
                Event::Asks { client } => match self.clients[client].connection {
                    Some(key) => self.after(WIRE, Event::Arrives(key)),
                    // Its place was given away.
                    None => self.after(Duration::ZERO, Event::Connects(client)),
                },
                Event::Turn => self.turn(),
            }
            if self.left == 0 {
                break;
            }
        }
        assert_eq!(self.left, 0, "nothing happens any more");
        self.now.since(began)
    }

    fn syn(&mut self, client: usize, attempt: u32, sent: u32) {
        if self.clients[client].attempt != attempt {
            return;
        }
        if self.backlog.len() < BACKLOG {
            // Its ClientHello comes when it has heard that it is connected.
            self.backlog.push_back((client, attempt, self.now + 2 * WIRE));
            self.wake();
        } else {
            let again = Duration::from_secs(1 << sent);
            self.after(again, Event::Syn { client, attempt, sent: sent + 1 });
        }
    }

    fn fails(&mut self, client: usize, attempt: u32) {
        let it = &mut self.clients[client];
        if it.attempt != attempt || it.connection.is_some() || it.served.is_some() {
            return;
        }
        // Octets of this try come late from now on.
        it.attempt += 1;
        let pause = it.backoff.next(self.jitter.next());
        self.after(pause, Event::Connects(client));
    }

    /// The service closes a connection.
    fn end(&mut self, key: u64, at: Instant) {
        let Connection { client, attempt, accepted, .. } =
            self.connections.remove(&key).expect("it is there");
        self.ready.remove(&key);
        self.deadlines.remove(&(accepted + HANDSHAKE_TIME, key));
        self.admission.leave(key);
        let it = &mut self.clients[client];
        if it.connection == Some(key) {
            it.connection = None;
        } else {
            self.at(at + WIRE, Event::Fails { client, attempt });
        }
    }

    fn turn(&mut self) {
        let now = self.now;
        let mut clock = now;
        while let Some(&(at, key)) = self.deadlines.first()
            && at <= now
        {
            self.end(key, clock);
        }
        let ready = core::mem::take(&mut self.ready);
        let is_open = |key: &u64| self.connections.get(key).is_some_and(|it| it.stage == 2);
        let (open, others): (Vec<u64>, Vec<u64>) = ready.into_iter().partition(is_open);
        for key in open.into_iter().chain(others) {
            self.serve(now, key, &mut clock);
        }
        for _ in 0..ACCEPTS {
            let Some((client, attempt, hello_at)) = self.backlog.pop_front() else { break };
            clock = clock + COSTS.accept;
            let address = self.address(client);
            match self.admission.judge(now, address) {
                Verdict::Admit => {}
                Verdict::InPlaceOf(old, _) => {
                    self.replaced += 1;
                    self.end(old, clock);
                }
                Verdict::Refuse(_) => {
                    self.refused += 1;
                    self.at(clock + WIRE, Event::Fails { client, attempt });
                    continue;
                }
            }
            self.next += 1;
            let key = self.next;
            self.admission.enter(now, key, address);
            self.deadlines.insert((now + HANDSHAKE_TIME, key));
            self.connections.insert(key, Connection { client, attempt, accepted: now, stage: 0 });
            self.at(hello_at.max(clock), Event::Arrives(key));
        }
        if self.ready.is_empty() && self.backlog.is_empty() {
            self.is_turning = false;
            if let Some(&(at, _)) = self.deadlines.first() {
                self.is_turning = true;
                // Earlier events wake nobody: at most so much is waited for.
                self.at(at.min(clock + Duration::from_micros(50)).max(clock), Event::Turn);
            }
        } else {
            self.at(clock, Event::Turn);
        }
    }

    fn serve(&mut self, now: Instant, key: u64, clock: &mut Instant) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let client = connection.client;
        if self.clients[client].attempt != connection.attempt {
            // It has given up meanwhile.
            *clock = *clock + COSTS.accept;
            let end = *clock;
            return self.end(key, end);
        }
        match connection.stage {
            0 => {
                connection.stage = 1;
                *clock = *clock + COSTS.hello;
                self.admission.speaks(key);
                let back = *clock + WIRE + CLIENT + WIRE;
                return self.at(back, Event::Arrives(key));
            }
            1 => {
                connection.stage = 2;
                *clock = *clock + COSTS.finish;
                self.deadlines.remove(&(connection.accepted + HANDSHAKE_TIME, key));
                self.clients[client].connection = Some(key);
            }
            _ => {}
        }
        *clock = *clock + COSTS.answer;
        self.admission.rests(now, key);
        let peer = Peer {
            identity: "spiffe://a/client".parse().unwrap(),
            serial: Serial::new(&[1]).unwrap(),
            not_after: WallTime::from_unix_millis(i64::MAX),
            address: self.address(client),
        };
        let read = OpSet::NONE.with(OpType::Read);
        let wanted =
            |at: u32| Wanted { name: format!("kv/{at}").parse().unwrap(), ops: read, have: None };
        let regions = (0..4).map(wanted).collect();
        let request = Request { initiators: peer.address.into(), pid: Pid(client as u32), regions };
        match self.service.answer(wall(now), &peer, &request).reply {
            Reply::Answers(_) => {
                let it = &mut self.clients[client];
                it.backoff.succeeded();
                if it.served.replace(*clock).is_none() {
                    self.left -= 1;
                }
            }
            Reply::Refused(Refusal::NotNow { retry }) => {
                self.at(*clock + WIRE + retry, Event::Asks { client });
            }
            Reply::Refused(other) => panic!("{other:?}"),
        }
    }
}

/// All are served in time, whatever numbers waiting times begin with.
fn all_are_served(hosts: usize, tries: u32) {
    for seed in 0..3 {
        let mut world = World::new(hosts, tries, seed);
        let took = world.run();
        let World { replaced, refused, .. } = world;
        evidence::show(format_args!(
            "{CLIENTS} cold clients on {hosts} hosts after {tries} tries in vain, seed {seed}: all \
             served within {} ms; {refused} connections refused, {replaced} made room",
            took.as_millis()
        ));
        assert!(took < SOON, "{took:?}");
        // Those who came last had to have somebody's place.
        assert!(replaced >= (CLIENTS - Places::default().connections) as u64, "{replaced}");
    }
}

#[test]
fn twenty_thousand_clients_that_start_at_once_are_all_served_within_fifteen_seconds() {
    all_are_served(CLIENTS, 0);
}

#[test]
fn the_same_on_two_hundred_hosts() {
    all_are_served(200, 0);
}

#[test]
fn those_who_have_lost_their_service_a_moment_ago_as_well() {
    all_are_served(CLIENTS, 1);
}

#[test]
fn those_who_have_missed_their_service_for_long_as_well() {
    all_are_served(CLIENTS, 20);
}
