//! Fetches over sockets of loopback: by threads, by futures, and by loops at times of the tests.

use core::{
    net::Ipv4Addr,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    sync::Arc,
    task::Wake,
    thread::{self, Thread},
};

use rma_core::{addr::Pid, op::OpType, region::RegionId, time::Instant};
use rma_keys::{
    catalog::{Region, Term},
    epoch::Life,
    io::{
        client::{Client, ClientLoop, Fetch, FetchError, Fetcher, Hindrance, SourceId},
        clock,
        server::{EndReason, Handler, Limits, Server, ServerLoop},
    },
    message::{
        number,
        reply::{Answer, Refusal, Reply},
        request::{Request, Wanted},
    },
    ops::OpSet,
    peer::Peer,
    policy::Policy,
    secret::RegionSecret,
    service::{Service, ServiceConfig},
    time::{Now, WallTime},
    tls::wall::Wall,
};
use rustls::{ServerConnection, StreamOwned};

use crate::ca::{CLIENT, Ca, NOON_MS, SERVER};

const PATIENCE: Duration = Duration::from_secs(20);

const POLICY: &str = r#"
[[allow]]
region = "kv/*"
identity = "spiffe://example.org/kv/client/*"
ops = ["read"]
"#;

fn request() -> Request {
    let ops = OpSet::NONE.with(OpType::Read);
    let wanted = Wanted { name: "kv/index".parse().unwrap(), ops, have: None };
    let initiators = rma_core::addr::HostAddr::from(Ipv4Addr::LOCALHOST).into();
    Request { initiators, pid: Pid(7), regions: vec![wanted] }
}

/// Answers as a service with one region does.
fn answers() -> impl Handler + Send {
    let policy = Policy::parse(POLICY).unwrap();
    let mut service = Service::new(Life([7; 8]), policy, ServiceConfig::default());
    let responders = rma_core::addr::HostAddr::from(Ipv4Addr::LOCALHOST).into();
    let region = Region { responders, id: RegionId::from_bits(5), len: 4096 };
    let now = clock::now();
    let term = Term {
        announce_at: now.boot + Duration::from_secs(3000),
        ends_at: now.boot + Duration::from_secs(3600),
    };
    let secret = RegionSecret::new(&mut [1; 16]);
    service.publish(now, "kv/index".parse().unwrap(), region, &secret, term).unwrap();
    move |now: Now, peer: &Peer, message: &[u8]| service.handle(now, peer, message).reply
}

fn is_granted(outcome: Result<Reply, FetchError>) -> bool {
    matches!(outcome, Ok(Reply::Answers(answers)) if matches!(answers[..], [Answer::Granted(_)]))
}

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

/// The smallest executor: it parks the thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park_timeout(PATIENCE),
        }
    }
}

#[test]
fn threads_and_futures_fetch_over_one_connection() {
    let ca = Ca::new("root");
    let limits = Limits::default();
    let turns = ServerLoop::new(listener(), &ca.lasting(SERVER), answers(), limits).unwrap();
    let server = Server::start(turns).unwrap();
    let client = Client::start(ClientLoop::new(ca.lasting(CLIENT)).unwrap()).unwrap();
    let fetcher = client.fetcher();
    let source = fetcher.source(vec![server.address()], SERVER.parse().unwrap());
    assert!(is_granted(fetcher.fetch(source, &request(), PATIENCE).wait()));
    assert!(is_granted(block_on(fetcher.fetch(source, &request(), PATIENCE))));
    thread::scope(|scope| {
        for _ in 0..4 {
            let fetch = || is_granted(fetcher.fetch(source, &request(), PATIENCE).wait());
            scope.spawn(move || assert!((0..25).all(|_| fetch())));
        }
    });
    let under_way: Vec<Fetch> =
        (0..50).map(|_| fetcher.fetch(source, &request(), PATIENCE)).collect();
    assert!(under_way.into_iter().all(|it| is_granted(it.wait())));
    drop(client);
    let counters = server.counters();
    assert!(counters.handshakes == 1 && counters.messages <= 152, "{counters:?}");
}

#[test]
fn a_client_connects_from_the_address_that_it_wants_keys_for() {
    let ca = Ca::new("root");
    let turns =
        ServerLoop::new(listener(), &ca.lasting(SERVER), answers(), Limits::default()).unwrap();
    let server = Server::start(turns).unwrap();
    // The rule lists no addresses, so the connection's own has keys alone. The last two are not
    // this machine's, or of another family than the service's: then the kernel chooses.
    for (initiator, from, is_given) in [
        ("127.0.0.9", "127.0.0.9", true),
        ("127.0.0.1", "127.0.0.1", true),
        ("192.0.2.77", "127.0.0.1", false),
        ("2001:db8::7", "127.0.0.1", false),
    ] {
        let client = Client::start(ClientLoop::new(ca.lasting(CLIENT)).unwrap()).unwrap();
        let fetcher = client.fetcher();
        let source = fetcher.source(vec![server.address()], SERVER.parse().unwrap());
        let initiator: rma_core::addr::HostAddr = initiator.parse().unwrap();
        let request = Request { initiators: initiator.into(), ..request() };
        let outcome = fetcher.fetch(source, &request, PATIENCE).wait();
        assert_eq!(is_granted(outcome), is_given, "{initiator}");
        assert_eq!(fetcher.connected_from(source), Some(from.parse().unwrap()), "{initiator}");
    }
}

#[test]
fn a_connection_for_one_address_serves_no_other_of_the_same_client() {
    let ca = Ca::new("root");
    let turns =
        ServerLoop::new(listener(), &ca.lasting(SERVER), answers(), Limits::default()).unwrap();
    let server = Server::start(turns).unwrap();
    let client = Client::start(ClientLoop::new(ca.lasting(CLIENT)).unwrap()).unwrap();
    let fetcher = client.fetcher();
    let source = fetcher.source(vec![server.address()], SERVER.parse().unwrap());
    let fetch = |initiator: &str| {
        let initiator: rma_core::addr::HostAddr = initiator.parse().unwrap();
        let request = Request { initiators: initiator.into(), ..request() };
        fetcher.fetch(source, &request, PATIENCE)
    };
    for initiator in ["127.0.0.9", "127.0.0.8", "127.0.0.8", "127.0.0.9"] {
        assert!(is_granted(fetch(initiator).wait()), "{initiator}");
        assert_eq!(fetcher.connected_from(source), Some(initiator.parse().unwrap()));
    }
    // The server counts a handshake a moment after its client has gone on.
    let asked = clock::now().boot;
    while server.counters().handshakes < 3 && clock::now().boot.since(asked) < PATIENCE {
        thread::yield_now();
    }
    assert_eq!(server.counters().handshakes, 3, "one serves as long as nobody needs another");
    // Also where several wait.
    let under_way: Vec<Fetch> = ["127.0.0.7", "127.0.0.9", "127.0.0.7"].map(fetch).into();
    assert!(under_way.into_iter().all(|it| is_granted(it.wait())));
    // One from whatever the kernel chooses, where the address is not to be had, is kept as well.
    let before = server.counters().handshakes;
    (0..3).for_each(|_| assert!(!is_granted(fetch("192.0.2.77").wait())));
    // One of those before may have been counted only now.
    assert!(server.counters().handshakes - before < 3, "it is kept");
    assert_eq!(fetcher.lost(source), 0, "none has broken");
}

#[test]
fn a_client_that_ends_leaves_nobody_waiting() {
    let ca = Ca::new("root");
    let client = Client::start(ClientLoop::new(ca.lasting(CLIENT)).unwrap()).unwrap();
    let fetcher = client.fetcher().clone();
    // Nobody accepts.
    let silent = listener();
    let source = fetcher.source(vec![silent.local_addr().unwrap()], SERVER.parse().unwrap());
    let fetch = fetcher.fetch(source, &request(), PATIENCE);
    drop(client);
    assert!(matches!(fetch.wait(), Err(FetchError::Stopped)));
    let late = fetcher.fetch(source, &request(), PATIENCE);
    assert!(matches!(late.wait(), Err(FetchError::Stopped)));
}

/// A client's loop, and what time it is.
struct Rig {
    client: ClientLoop,
    fetcher: Fetcher,
    since: Duration,
}

impl Rig {
    fn new() -> Self {
        let ca = Ca::new("root");
        let client = ClientLoop::new(ca.credentials(CLIENT)).unwrap();
        let fetcher = client.fetcher();
        Self { client, fetcher, since: Duration::ZERO }
    }

    fn source(&self, address: SocketAddr) -> SourceId {
        self.fetcher.source(vec![address], SERVER.parse().unwrap())
    }

    fn now(&self) -> Now {
        Now {
            boot: Instant::ZERO + self.since,
            wall: WallTime::from_unix_millis(NOON_MS + self.since.as_millis() as i64),
        }
    }

    /// Turns the loop, and lets time pass, until the fetch has ended.
    fn run(&mut self, fetch: &mut Fetch, step: Duration) -> Result<Reply, FetchError> {
        for _ in 0..10_000 {
            if let Some(outcome) = fetch.take() {
                return outcome;
            }
            // The sockets are asked each time, so nothing needs to wait.
            self.client.turn(self.now());
            self.since += step;
        }
        panic!("the fetch does not end");
    }
}

#[test]
fn a_service_that_is_missing_is_told_in_time_by_name() {
    let mut rig = Rig::new();
    let address = listener().local_addr().unwrap();
    let source = rig.source(address);
    let mut fetch = rig.fetcher.fetch(source, &request(), Duration::from_secs(3));
    let error = rig.run(&mut fetch, Duration::from_millis(1)).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, FetchError::Unanswered { why: Hindrance::Connect(_), .. }), "{text}");
    assert!(text.contains(SERVER) && text.contains(&address.to_string()), "{text}");
    assert!((2_999..3_010).contains(&rig.since.as_millis()), "{:?}", rig.since);
    // The one after it is told the same, however long the pause is by now.
    let mut fetch = rig.fetcher.fetch(source, &request(), Duration::from_millis(5));
    let error = rig.run(&mut fetch, Duration::from_millis(1)).unwrap_err();
    assert!(matches!(error, FetchError::Unanswered { why: Hindrance::Connect(_), .. }), "{error}");
}

#[test]
fn a_service_that_says_nothing_is_told_in_time() {
    let mut rig = Rig::new();
    let silent = listener();
    let source = rig.source(silent.local_addr().unwrap());
    let mut fetch = rig.fetcher.fetch(source, &request(), Duration::from_secs(30));
    let error = rig.run(&mut fetch, Duration::from_millis(5)).unwrap_err();
    assert!(matches!(error, FetchError::Unanswered { why: Hindrance::Time(_), .. }), "{error}");
}

#[test]
fn another_service_than_is_expected_gets_no_request() {
    let ca = Ca::new("root");
    let limits = Limits::default();
    let turns = ServerLoop::new(listener(), &ca.lasting(CLIENT), answers(), limits).unwrap();
    let server = Server::start(turns).unwrap();
    let client = Client::start(ClientLoop::new(ca.lasting(CLIENT)).unwrap()).unwrap();
    let fetcher = client.fetcher();
    let source = fetcher.source(vec![server.address()], SERVER.parse().unwrap());
    let outcome = fetcher.fetch(source, &request(), Duration::from_millis(500)).wait();
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("kv/server was expected"), "{error}");
    assert_eq!(server.counters().messages, 0);
}

#[test]
fn a_fetch_whose_connection_is_lost_goes_on_over_the_next() {
    let ca = Ca::new("root");
    let first = listener();
    let address = first.local_addr().unwrap();
    let turns = |listener| {
        let refuse = |_: Now, _: &Peer, message: &[u8]| {
            Reply::Refused(Refusal::NotNow { retry: Duration::from_secs(1) })
                .encode(number(message))
        };
        ServerLoop::new(listener, &ca.lasting(SERVER), refuse, Limits::default()).unwrap()
    };
    let server = Server::start(turns(first)).unwrap();
    let client = Client::start(ClientLoop::new(ca.lasting(CLIENT)).unwrap()).unwrap();
    let fetcher = client.fetcher();
    let source = fetcher.source(vec![address], SERVER.parse().unwrap());
    let refused = fetcher.fetch(source, &request(), PATIENCE).wait();
    assert!(matches!(refused, Ok(Reply::Refused(Refusal::NotNow { .. }))), "{refused:?}");
    drop(server);
    let fetch = fetcher.fetch(source, &request(), PATIENCE);
    // It is back, as another process would be.
    let again = ServerLoop::new(
        TcpListener::bind(address).unwrap(),
        &ca.lasting(SERVER),
        answers(),
        Limits::default(),
    );
    let _server = Server::start(again.unwrap()).unwrap();
    assert!(is_granted(fetch.wait()));
    assert_eq!(fetcher.lost(source), 1);
}

/// The manner of a service with one whole request.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// It is gone, without an answer.
    Hangs,
    /// It begins to answer, and is gone.
    Breaks,
    /// It answers so often, and once more when it is asked the next time.
    Repeats(usize),
    Once,
}

/// A service that treats each connection's first request in its own manner, and answers the others.
/// It says what each request that came was for.
fn behaves(listener: TcpListener, ca: &Ca, manners: Vec<Manner>) -> thread::JoinHandle<Vec<u32>> {
    let date = Wall::new();
    date.set(clock::now().wall);
    let config = ca.lasting(SERVER).server(&Arc::new(date));
    thread::spawn(move || {
        let mut pids = Vec::new();
        for manner in manners {
            let (socket, _) = listener.accept().unwrap();
            let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(tls, socket);
            let mut manner = Some(manner);
            let mut again = Vec::new();
            loop {
                let mut length = [0; 4];
                if stream.read_exact(&mut length).is_err() {
                    break;
                }
                let mut message = vec![0; u32::from_be_bytes(length) as usize];
                stream.read_exact(&mut message).unwrap();
                let pid = Request::decode(&message).unwrap().pid.0;
                pids.push(pid);
                // By which the client tells answers apart.
                let retry = Duration::from_millis(pid.into());
                let reply = Reply::Refused(Refusal::NotNow { retry }).encode(number(&message));
                let whole = [&(reply.len() as u32).to_be_bytes()[..], &reply].concat();
                match manner.take().unwrap_or(Manner::Once) {
                    Manner::Hangs => break,
                    Manner::Breaks => {
                        stream.write_all(&whole[..6]).unwrap();
                        break;
                    }
                    Manner::Repeats(times) => {
                        stream.write_all(&whole.repeat(times)).unwrap();
                        again = whole;
                    }
                    Manner::Once => {
                        let replies = [core::mem::take(&mut again), whole].concat();
                        if stream.write_all(&replies).is_err() {
                            break;
                        }
                    }
                }
            }
        }
        pids
    })
}

fn of_pid(pid: u32) -> Request {
    Request { pid: Pid(pid), ..request() }
}

fn answered(outcome: Result<Reply, FetchError>, pid: u32) {
    let retry = Duration::from_millis(pid.into());
    match outcome {
        Ok(Reply::Refused(Refusal::NotNow { retry: found })) => assert_eq!(found, retry),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_that_is_lost_in_the_midst_of_a_fetch_costs_the_fetch_nothing_but_time() {
    let (ca, listener) = (Ca::new("root"), listener());
    let address = listener.local_addr().unwrap();
    let service = behaves(listener, &ca, vec![Manner::Hangs, Manner::Breaks, Manner::Once]);
    let client = Client::start(ClientLoop::new(ca.lasting(CLIENT)).unwrap()).unwrap();
    let source = client.fetcher().source(vec![address], SERVER.parse().unwrap());
    answered(client.fetcher().fetch(source, &of_pid(7), PATIENCE).wait(), 7);
    assert_eq!(client.fetcher().lost(source), 2);
    drop(client);
    assert_eq!(service.join().unwrap(), [7, 7, 7], "the same request again, each time");
}

#[test]
fn an_answer_that_comes_twice_is_never_taken_for_that_of_the_next_request() {
    let (ca, listener) = (Ca::new("root"), listener());
    let address = listener.local_addr().unwrap();
    let service = behaves(listener, &ca, vec![Manner::Repeats(2)]);
    let client = Client::start(ClientLoop::new(ca.lasting(CLIENT)).unwrap()).unwrap();
    let source = client.fetcher().source(vec![address], SERVER.parse().unwrap());
    // All wait, so that the second goes as soon as the first is answered.
    let under_way = [1, 2, 3].map(|pid| client.fetcher().fetch(source, &of_pid(pid), PATIENCE));
    for (fetch, pid) in under_way.into_iter().zip(1..) {
        answered(fetch.wait(), pid);
    }
    let fetcher = client.fetcher().clone();
    drop(client);
    assert_eq!(service.join().unwrap(), [1, 2, 3]);
    let seen = (fetcher.unasked(source), fetcher.lost(source));
    assert_eq!(seen, (2, 0), "both that came again were counted, and cost no connection");
}

#[test]
fn a_service_that_repeats_itself_without_end_loses_its_connection_and_no_request() {
    let (ca, listener) = (Ca::new("root"), listener());
    let address = listener.local_addr().unwrap();
    let service = behaves(listener, &ca, vec![Manner::Repeats(18), Manner::Once]);
    let client = Client::start(ClientLoop::new(ca.lasting(CLIENT)).unwrap()).unwrap();
    let source = client.fetcher().source(vec![address], SERVER.parse().unwrap());
    let [first, second] = [1, 2].map(|pid| client.fetcher().fetch(source, &of_pid(pid), PATIENCE));
    answered(first.wait(), 1);
    answered(second.wait(), 2);
    assert_eq!(client.fetcher().lost(source), 1);
    assert_eq!(client.fetcher().unasked(source), 17);
    drop(client);
    let came = service.join().unwrap();
    assert!(matches!(came[..], [1, 2] | [1, 2, 2]), "{came:?}");
}

#[test]
fn a_client_whose_wall_clock_is_stepped_by_a_day_says_which_time_it_sees() {
    let ca = Ca::new("root");
    let own = ca.lasting(CLIENT);
    let day = 24 * 60 * 60 * 1000;
    for (step, says) in [
        (day, "ended at 2026-11-24T00:00:00Z; it is 2026-11-24T12:00:00Z here"),
        (-day, "is good from 2026-11-23T00:00:00Z on; it is 2026-11-22T12:00:00Z here"),
        (0, ""),
    ] {
        let limits = Limits::default();
        let turns =
            ServerLoop::new(listener(), &ca.credentials(SERVER), answers(), limits).unwrap();
        let server = Server::start(turns).unwrap();
        let mut client = ClientLoop::new(own.clone()).unwrap();
        let fetcher = client.fetcher();
        let source = fetcher.source(vec![server.address()], SERVER.parse().unwrap());
        let mut fetch = fetcher.fetch(source, &request(), PATIENCE);
        let mut skipped = Duration::ZERO;
        let outcome = loop {
            let here = Now {
                boot: clock::now().boot + skipped,
                wall: WallTime::from_unix_millis(NOON_MS + step),
            };
            client.wait(here.boot);
            client.turn(here);
            if let Some(outcome) = fetch.take() {
                break outcome;
            }
            if server.counters().ended(EndReason::Handshake) > 0 {
                // It would be refused again and again.
                skipped = PATIENCE;
            }
        };
        match outcome {
            Ok(reply) if says.is_empty() => assert!(is_granted(Ok(reply))),
            Err(FetchError::Unanswered { why: Hindrance::Certificate(why), .. }) => {
                assert!(why.to_string().ends_with(says) && !says.is_empty(), "{why}");
            }
            other => panic!("{step}: {other:?}"),
        }
    }
}
