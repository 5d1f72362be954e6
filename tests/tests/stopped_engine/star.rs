//! S1 to S3 and S6 of StaR on a real kernel: the other side of a connection is a process of its
//! own, which is killed or stopped in the midst of set-up, of work, of changes of roles and of
//! closing, and started again. Here every work request ends, once; what memory holds then, it holds
//! for good; and a message that its sender is told has been received was.
//!
//! Both sides have SENDs, RECVs, WRITEs and READs under way all the time. Nothing is judged by the
//! wall clock: what is waited for is a state.

use core::time::Duration;
use std::{
    collections::BTreeSet,
    io::{Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
};

use rma_lab::Scratch;
use rma_xdp::{
    Host, HostConfig,
    star::{
        Access, CqId, MemoryRegion, Qp, QpConfig, QpState, RecvWr, Remote, Role, SendWr,
        StarConfigBuilder, StarPortalConfig, StarVerbs, Wc, WcStatus,
    },
    time::{Clock, TscClock},
};

use super::{
    hosts::{Network, Place, Side},
    model::Random,
    peer::{Part, Peer, answer, orders, wait_for},
};

/// How long a frame is valid. Long, so that a machine that is busy loses few: what is late five
/// times ends a connection.
const VALID: Duration = Duration::from_millis(64);

/// Bytes of a message: more than a frame.
const LEN: u32 = 3000;

/// Places in each side's memory: what is sent, what RECVs take, what the peer writes to, what READs
/// bring.
const FROM: u64 = 0;
const TAKEN: u64 = 4096;
const WRITTEN: u64 = 8192;
const READ: u64 = 12_288;
const MEMORY: usize = 16_384;

/// Work requests of each kind that are under way.
const DEPTH: u64 = 4;

/// After how many successes more a side asks for a change of roles again.
const ASKS_EVERY: u64 = 30;

/// The orders to the other process: whether it is the stateless side, and whether it is to ask for
/// changes of roles.
const IS_Z: u32 = 1;
const CHANGES_ROLES: u32 = 2;

/// The fault of the other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Killed,
    Stopped,
}

/// When it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    SetUp,
    Work,
    /// While both sides ask for changes of roles again and again.
    Roles,
    Close,
}

/// By kind of work request, a number of them: of RECVs, SENDs, WRITEs, READs.
type Kinds = [u64; 4];

/// One side of a connection.
struct End {
    verbs: StarVerbs,
    mr: MemoryRegion,
    cq: CqId,
    qp: Qp,
    remote: u32,
    /// How many are under way.
    under_way: Kinds,
    posted: u64,
    ended: BTreeSet<u64>,
    succeeded: Kinds,
    /// Nothing is posted any longer.
    is_ending: bool,
    /// The first failed completion, if anything has.
    failed: Option<Wc>,
    /// After how many successes it asks for a change of roles; how often there was one.
    asks_at: u64,
    changes: u32,
    was_stateful: bool,
    _host: Host,
}

fn open(network: Network, side: Side, state_dir: &std::path::Path) -> Host {
    let mut star = StarConfigBuilder::default();
    (star.valid, star.retransmit_timeout) = (VALID, VALID * 9 / 8);
    star.retries = 4;
    star.rnr_timeout = Duration::from_secs(10);
    star.probe_interval = Duration::from_millis(200);
    let mut config = HostConfig::udp(network.address(side));
    config.counter.state_dir = Some(state_dir.to_owned());
    [config.port, config.stateless_port, config.stateful_port] = network.ports;
    config.star = Some(star);
    // The child of another test may hold copies of what the last host here has closed, between its
    // fork and its exec.
    let mut host = None;
    wait_for("a host", || {
        host = Host::open(config.clone()).ok();
        host.is_some()
    });
    host.unwrap()
}

/// Returns the address where the two processes meet: a name of their own.
fn meeting_place(network: Network) -> SocketAddr {
    let name = format!("rma-stopped-star {}", network.words());
    SocketAddr::from_abstract_name(name.as_bytes()).unwrap()
}

impl End {
    fn new(host: Host, role: Role) -> Self {
        let mut config = StarPortalConfig::default();
        config.verbs.probe_interval = Duration::from_millis(200);
        let mut verbs = host.verbs(config).unwrap();
        let pd = host.alloc_pd(&verbs).unwrap();
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mr = host.reg_mr(&pd, MEMORY, all).unwrap();
        let cq = verbs.create_cq(64);
        let qp = verbs.create_qp(&pd, cq, cq, QpConfig { role, ..QpConfig::default() }).unwrap();
        let (under_way, ended, succeeded) = Default::default();
        let (remote, posted) = (0, 0);
        Self {
            verbs,
            mr,
            cq,
            qp,
            remote,
            under_way,
            posted,
            ended,
            succeeded,
            is_ending: false,
            failed: None,
            asks_at: u64::MAX,
            changes: 0,
            was_stateful: role == Role::Stateful,
            _host: host,
        }
    }

    /// Connects, and tells the peer of the memory that is shared with it.
    fn connect(&mut self, mut stream: UnixStream, is_first: bool) {
        if is_first {
            self.verbs.connect_over(self.qp, &mut stream).unwrap();
        } else {
            self.verbs.accept_over(self.qp, &mut stream).unwrap();
        }
        stream.write_all(&self.mr.rkey().to_le_bytes()).unwrap();
        let mut remote = [0; 4];
        stream.read_exact(&mut remote).unwrap();
        self.remote = u32::from_le_bytes(remote);
    }

    /// Posts whatever is not under way, until something fails, and takes completions.
    fn turn(&mut self) {
        let Self { verbs, mr, qp, .. } = self;
        let (remote, qp) = (|at| Remote::of(self.remote, at), *qp);
        for kind in 0..4_u64 {
            while !self.is_ending && self.failed.is_none() && self.under_way[kind as usize] < DEPTH
            {
                let wr_id = self.posted << 2 | kind;
                let data = mr.slice(FROM, LEN);
                let posted = match kind {
                    0 => verbs.post_recv(qp, &RecvWr { wr_id, sge: mr.slice(TAKEN, LEN) }),
                    1 => verbs.post_send(qp, &SendWr::send(wr_id, data)),
                    2 => verbs.post_send(qp, &SendWr::write(wr_id, data, remote(WRITTEN))),
                    _ => {
                        verbs.post_send(qp, &SendWr::read(wr_id, mr.slice(READ, LEN), remote(FROM)))
                    }
                };
                if posted.is_err() {
                    // It has failed, which completions tell.
                    break;
                }
                self.posted += 1;
                self.under_way[kind as usize] += 1;
            }
        }
        let mut wcs = [Wc::EMPTY; 16];
        let count = verbs.poll_cq(self.cq, &mut wcs);
        for wc in &wcs[..count] {
            assert!(self.ended.insert(wc.wr_id), "{wc:?} ends twice");
            self.under_way[(wc.wr_id & 3) as usize] -= 1;
            if wc.status == WcStatus::Success {
                self.succeeded[(wc.wr_id & 3) as usize] += 1;
            } else {
                self.failed = self.failed.or(Some(*wc));
            }
        }
        self.change_roles();
        if count == 0 {
            std::thread::yield_now();
        }
    }

    fn all_succeeded(&self) -> u64 {
        self.succeeded.iter().sum()
    }

    /// Asks for a change of roles, if it is time, and notes those that there were.
    fn change_roles(&mut self) {
        let Some(info) = self.verbs.query_qp(self.qp) else { return };
        if info.state != QpState::Ready {
            return;
        }
        let is_stateful = info.is_stateful == Some(true);
        self.changes += u32::from(is_stateful != self.was_stateful);
        self.was_stateful = is_stateful;
        if self.all_succeeded() >= self.asks_at {
            self.asks_at = self.all_succeeded() + ASKS_EVERY;
            // The other side may have asked, or have ended the connection.
            let _ = self.verbs.switch_role(self.qp);
        }
    }

    fn is_changing_roles(&self) -> bool {
        self.verbs.query_qp(self.qp).is_some_and(|info| info.is_switching)
    }

    fn assert_well(&self, case: (Role, Fault, When)) {
        assert_eq!(self.failed, None, "{case:?}: nobody has been stopped");
    }

    fn is_over(&self) -> bool {
        // A connection may end just when all that was posted has succeeded.
        let has_ended = self.verbs.query_qp(self.qp).is_none_or(|it| it.state == QpState::Error);
        (self.is_ending || self.failed.is_some() || has_ended) && self.under_way == [0; 4]
    }

    /// Sees all that is under way to its end.
    fn end(&mut self, what: &str) {
        wait_for(what, || {
            self.turn();
            self.is_over()
        });
        assert_eq!(self.ended.len() as u64, self.posted, "each ends once");
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; MEMORY];
        self.mr.read(0, &mut bytes).unwrap();
        bytes
    }
}

/// The other side, which works until its connection fails. `region` of its part has a bit if it is
/// the stateless side, and one if it is to ask for changes of roles.
fn play(Part { side, network, region, state_dir }: &Part) {
    let role = if region & IS_Z != 0 { Role::Stateless } else { Role::Stateful };
    let mut end = End::new(open(*network, *side, state_dir), role);
    end.asks_at = if region & CHANGES_ROLES != 0 { ASKS_EVERY / 2 } else { u64::MAX };
    let stream = UnixStream::connect_addr(&meeting_place(*network)).unwrap();
    end.connect(stream, false);
    end.mr.write(FROM, &[0xb0; LEN as usize]).unwrap();
    end.end("the end of the other side's work");
    let [recvs, sends, ..] = end.succeeded;
    answer(&format!("ended {} {recvs} {sends}", end.ended.len()));
    // Until it is killed.
    orders().for_each(drop);
}

/// Connects with a new process at the other address, which is told these bits.
fn begin(place: &Place, name: &str, end: &mut End, bits: u32, is_killed: bool) -> Peer {
    let listener = UnixListener::bind_addr(&meeting_place(place.network)).unwrap();
    let mut peer = Peer::start(place, name, Side::Target, bits);
    let (mut stream, _) = listener.accept().unwrap();
    if is_killed {
        peer.stop();
        let connected = std::thread::scope(|scope| {
            let connecting = scope.spawn(|| end.verbs.connect_over(end.qp, &mut stream));
            peer.kill();
            connecting.join().unwrap()
        });
        assert!(connected.is_err(), "nobody has answered");
        return peer;
    }
    end.connect(stream, true);
    end.mr.write(FROM, &[0xa0; LEN as usize]).unwrap();
    peer
}

fn strike_and_look(place: &Place, name: &str, case: (Role, Fault, When), random: &mut Random) {
    let (role, fault, when) = case;
    let (scratch, is_z) = (Scratch::new(), if role == Role::Stateful { IS_Z } else { 0 });
    let mut end = End::new(open(place.network, Side::Initiator, scratch.path()), role);
    let changes_roles = if when == When::Roles { CHANGES_ROLES } else { 0 };
    let mut peer = begin(place, name, &mut end, is_z | changes_roles, when == When::SetUp);
    if when == When::SetUp {
        return;
    }
    let enough = 50 + random.below(100);
    let mut changes = 0;
    if when == When::Roles {
        (end.asks_at, changes) = (0, 1 + random.below(5) as u32);
    }
    wait_for("work", || {
        end.turn();
        end.assert_well(case);
        end.all_succeeded() >= enough && end.changes >= changes
    });
    if when == When::Roles {
        wait_for("a change of roles", || {
            end.turn();
            end.assert_well(case);
            end.is_changing_roles()
        });
    }
    for _ in 0..random.below(2000) {
        std::hint::spin_loop();
    }
    if when == When::Close {
        end.verbs.close(end.qp);
        end.is_ending = true;
    }
    match fault {
        Fault::Killed => peer.kill(),
        Fault::Stopped => peer.stop(),
    }
    end.end("the end of the work here");
    let bytes = end.bytes();
    if fault == Fault::Stopped {
        peer.go_on();
        let [ended, recvs, sends] = peer.hear("ended").try_into().unwrap();
        assert!(ended > 0, "{case:?}");
        let received = [(end.succeeded[1], recvs), (sends, end.succeeded[0])];
        assert!(received.iter().all(|(sent, received)| sent <= received), "{case:?}: {received:?}");
    }
    // Longer than anything is valid that was on its way.
    let clock = TscClock::new();
    while clock.now().as_nanos() < 4 * VALID.as_nanos() as u64 {
        end.verbs.poll();
    }
    assert!(end.bytes() == bytes, "{case:?}: something has landed late");
    peer.kill();
    let (succeeded, posted, changes) = (end.all_succeeded(), end.posted, end.changes);
    println!("{case:?}: {succeeded} of {posted} work requests succeeded, {changes} changes");
    drop(end);

    // The host is there again, under its address, and knows nothing of what was.
    let mut end = End::new(open(place.network, Side::Initiator, scratch.path()), role);
    let _peer = begin(place, name, &mut end, is_z, false);
    wait_for("work with who was started again", || {
        end.turn();
        end.assert_well(case);
        end.all_succeeded() >= 50
    });
}

fn every_case(name: &str, role: Role) {
    if let Some(part) = Part::of_this_process() {
        return play(&part);
    }
    let mut random = Random(0x57a2);
    for fault in [Fault::Killed, Fault::Stopped] {
        for when in [When::SetUp, When::Work, When::Work, When::Roles, When::Roles, When::Close] {
            if (fault, when) != (Fault::Stopped, When::SetUp) {
                strike_and_look(&Place::loopback(), name, (role, fault, when), &mut random);
            }
        }
    }
}

#[test]
fn work_of_a_stateless_side_ends_once_whatever_becomes_of_its_peer() {
    every_case(
        "star::work_of_a_stateless_side_ends_once_whatever_becomes_of_its_peer",
        Role::Stateless,
    );
}

#[test]
fn work_of_a_stateful_side_ends_once_whatever_becomes_of_its_peer() {
    every_case(
        "star::work_of_a_stateful_side_ends_once_whatever_becomes_of_its_peer",
        Role::Stateful,
    );
}
