//! A wave: ten thousand connections are set up at once with one host, the stateless side of all,
//! while its peers have room for hardly more than theirs.
//!
//! Each carries a SEND in each direction, whole and once, and is then closed by both sides, while
//! others are still being set up. Nobody starves: not one fails, and the last is over in time. The
//! host in the middle keeps nothing of any of them, before, meanwhile and afterwards.

use rma_core::time::Instant;
use rma_star::{
    config::StarConfigBuilder,
    library::{Qp, QpConfig, QpState, RecvWr, Role, SendWr, VerbsConfig},
    verbs::WcStatus,
};

use crate::{
    host::{Application, Host, HostSettings, buffers},
    network::{Faults, Happening, MICRO, MILLI, Network, Random, host_of},
    oracle::{PARTS, Part, pattern},
};

/// Hosts that are the stateful side, how many connections each has, and how many applications there
/// are at the other side.
const PEERS: usize = 40;
const EACH: usize = 250;
const APPLICATIONS: usize = 20;

const CONNECTIONS: usize = PEERS * EACH;

/// The stateless side of all.
const MIDDLE: usize = 0;

/// Bytes of a message.
const LEN: u32 = 32;

/// How often an application looks whether connections are there.
const LOOK_EVERY: u64 = 20 * MICRO;

/// By then the last connection is over, in true time.
const END: u64 = 2000 * MILLI;

struct End {
    host: usize,
    application: usize,
    qp: Qp,
    has_posted: bool,
}

struct Wave {
    now: u64,
    hosts: Vec<Host>,
    network: Network,
    buffers: Vec<Vec<u8>>,
    /// The end at the peer, and the one in the middle.
    connections: Vec<[End; 2]>,
    /// Work requests that have completed, by connection: four each.
    completed: Vec<u8>,
    /// Messages of set-ups that were sent before any was received.
    offers: usize,
    is_answered: bool,
    /// When connections had carried everything.
    ended: Vec<u64>,
}

/// Returns the offset of a work request's bytes.
const fn offset(connection: usize, is_recv: bool) -> u64 {
    (2 * connection as u64 + is_recv as u64) * LEN as u64
}

/// Returns the message of an end.
fn message(connection: usize, end: usize) -> Vec<u8> {
    pattern((2 * connection + end) as u64, LEN as usize)
}

impl Wave {
    fn new(faults: Faults) -> Self {
        let mut random = Random(1);
        let mut star = StarConfigBuilder::default();
        // A row for each connection and few to spare, and four work requests for each row.
        (star.connections, star.work_requests, star.frames_under_way) = (256, 1024, 512);
        let verbs = VerbsConfig::default();
        let hosts = (0..=PEERS).map(|number| {
            let applications = if number == MIDDLE { APPLICATIONS } else { 1 };
            let settings = HostSettings { star, verbs, engines: 1, applications };
            Host::start(number, 0, &settings, &mut random)
        });
        let mut wave = Self {
            now: 0,
            hosts: hosts.collect(),
            network: Network::new(random, faults, 5 * MICRO),
            buffers: buffers(),
            connections: Vec::new(),
            completed: vec![0; CONNECTIONS],
            offers: 0,
            is_answered: false,
            ended: Vec::new(),
        };
        for connection in 0..CONNECTIONS {
            let places = [
                (1 + connection % PEERS, 0, Role::Stateful),
                (MIDDLE, connection % APPLICATIONS, Role::Stateless),
            ];
            let ends = places.map(|(host, application, role)| {
                let it = &mut wave.hosts[host].applications[application];
                let config = QpConfig { role, send_depth: 1, recv_depth: 1 };
                let qp = it.verbs.create_qp(it.pd, it.cq, it.cq, config).expect("a queue pair");
                it.ends.push((connection, usize::from(host == MIDDLE)));
                End { host, application, qp, has_posted: false }
            });
            wave.connections.push(ends);
        }
        wave
    }

    /// The application of an end, what its clock shows, and the queue pair.
    fn at(&mut self, connection: usize, end: usize) -> (&mut Application, Instant, Qp) {
        let End { host, application, qp, .. } = self.connections[connection][end];
        let host = &mut self.hosts[host];
        let now = host.now(self.now);
        (&mut host.applications[application], now, qp)
    }

    fn turn_soon(&mut self, host: usize, at: u64) {
        let it = &mut self.hosts[host];
        if at < it.turn_at {
            it.turn_at = at;
            self.network.schedule(at, Happening::Turn { host });
        }
    }

    fn run(&mut self) {
        for connection in 0..CONNECTIONS {
            let (application, now, qp) = self.at(connection, 0);
            application.verbs.connect(now, qp).expect("it is new");
        }
        for host in 0..self.hosts.len() {
            self.turn_soon(host, 0);
        }
        while let Some((at, event)) = self.network.next(END) {
            self.now = at;
            match event {
                Happening::Arrival(packet) => {
                    let host = host_of(packet.destination);
                    self.hosts[host].receive(packet);
                    self.turn_soon(host, at);
                }
                Happening::Message { connection, end, octets } => {
                    self.is_answered = true;
                    let (application, now, qp) = self.at(connection, end);
                    let taken = application.verbs.handle_message(now, qp, &octets);
                    taken.expect("it was told by the peer");
                    application.wakes_at = 0;
                    self.turn_soon(self.connections[connection][end].host, at);
                }
                Happening::Turn { host } if self.hosts[host].turn_at == at => {
                    self.hosts[host].turn_at = u64::MAX;
                    self.turn(host);
                }
                Happening::Turn { .. } => {}
                other => unreachable!("{other:?} was not planned"),
            }
        }
    }

    fn turn(&mut self, host: usize) {
        self.hosts[host].handle_frames(self.now);
        self.hosts[host].engine(self.now, &mut self.network, &mut self.buffers);
        let mut has_done = false;
        for application in 0..self.hosts[host].applications.len() {
            has_done |= self.application(host, application);
        }
        has_done |= self.hosts[host].engine(self.now, &mut self.network, &mut self.buffers);
        assert_eq!(self.hosts[MIDDLE].stateful_connections(), 0);
        let it = &self.hosts[host];
        let next = if has_done || it.is_busy() { Some(self.now) } else { it.timeout() };
        if let Some(next) = next {
            self.turn_soon(host, next.max(self.now + MICRO));
        }
    }

    fn application(&mut self, host: usize, application: usize) -> bool {
        let now = self.hosts[host].now(self.now);
        let it = &mut self.hosts[host].applications[application];
        let mut has_done = it.verbs.poll(now) > 0;
        if it.wakes_at <= self.now || has_done {
            // Those whose work is still to be posted. That they may begin is seen by looking.
            let mut ends = core::mem::take(&mut it.ends);
            ends.retain(|&(connection, end)| {
                has_done |= self.step(connection, end);
                !self.connections[connection][end].has_posted
            });
            let it = &mut self.hosts[host].applications[application];
            it.wakes_at = if ends.is_empty() { u64::MAX } else { self.now + LOOK_EVERY };
            it.ends = ends;
        }
        for wc in self.hosts[host].completions(application) {
            let (connection, end) = (wc.wr_id as usize / 4, wc.wr_id as usize / 2 % 2);
            assert_eq!(wc.status, WcStatus::Success, "connection {connection}, end {end}: {wc:?}");
            if wc.opcode.is_recv() {
                let mut bytes = [0; LEN as usize];
                let start = PARTS[Part::Local as usize].start + offset(connection, true);
                let (it, ..) = self.at(connection, end);
                it.memory.region.copy_out(start, &mut bytes).expect("within");
                assert!(bytes[..] == message(connection, 1 - end), "connection {connection}");
            }
            self.completed[connection] += 1;
            if self.completed[connection] == 4 {
                self.ended.push(self.now);
                self.close(connection);
            }
            has_done = true;
        }
        has_done
    }

    /// An end that has not posted yet looks around.
    fn step(&mut self, connection: usize, end: usize) -> bool {
        let (it, now, qp) = self.at(connection, end);
        match it.verbs.state(qp) {
            Some(QpState::Init) => {
                let Some(octets) = it.verbs.poll_message(now, qp) else { return false };
                self.offers += usize::from(!self.is_answered);
                self.network.tell(self.now, connection, 1 - end, octets);
            }
            Some(QpState::Ready) => {
                let start = PARTS[Part::Local as usize].start + offset(connection, false);
                it.memory.region.copy_in(start, &message(connection, end)).expect("within");
                let wr_id = (4 * connection + 2 * end) as u64;
                let [given, taken] =
                    [false, true].map(|is_recv| it.mrs[1].slice(offset(connection, is_recv), LEN));
                let recv = RecvWr { wr_id: wr_id + 1, sge: taken };
                it.verbs.post_recv(now, qp, &recv).expect("there is room");
                it.verbs.post_send(now, qp, &SendWr::send(wr_id, given)).expect("there is room");
                self.connections[connection][end].has_posted = true;
            }
            state => panic!("end {end} of connection {connection} is {state:?}"),
        }
        true
    }

    fn close(&mut self, connection: usize) {
        for end in 0..2 {
            let (it, now, qp) = self.at(connection, end);
            it.verbs.close(now, qp);
            self.turn_soon(self.connections[connection][end].host, self.now + MICRO);
        }
    }
}

//= star#II-D-zero-state
//= type=test
#[test]
fn a_wave_of_10_000_connections_leaves_nobody_behind() {
    let mut wave = Wave::new(Faults { loss: 20, ..Faults::default() });
    let before = wave.hosts[MIDDLE].stars[0].stateless_memory();
    wave.run();
    assert_eq!(wave.offers, CONNECTIONS, "all are on their way at once");
    let left: Vec<_> = (0..CONNECTIONS).filter(|&it| wave.completed[it] < 4).collect();
    assert!(left.is_empty(), "{} starve: {left:?}", left.len());
    let [first, last] = [0, CONNECTIONS - 1].map(|it| wave.ended[it] / MICRO);
    println!("from {first} us to {last} us, {} frames", wave.network.carried);
    assert_eq!(wave.hosts[MIDDLE].stars[0].stateless_memory(), before);
    for host in &wave.hosts {
        assert_eq!(host.stateful_connections(), 0, "of host {:?}", host.name());
        let strange = host.applications.iter().map(|it| it.verbs.strange_reports());
        assert_eq!(strange.sum::<u64>(), 0, "reports of host {:?}", host.name());
    }
}
