//! Hosts and their applications, and how a run goes.

use core::time::Duration;
use std::collections::BTreeMap;

use rma_core::time::Instant;
use rma_star::{
    counters::StarEvent,
    library::{Qp, QpConfig, QpState, RecvWr, Remote, Role, SendWr, Wc},
    verbs::{WcStatus, WqeOp},
};

use super::{
    host::Host,
    network::{Event, Network},
    options::{Options, Outcome, Workload},
};

/// How long a turn takes.
const TURN: Duration = Duration::from_micros(1);

/// SENDs of a call of RPC, and bytes of each.
const CALL: u64 = 3;
const CALL_LEN: u32 = 32;

/// RECVs that each end has posted, those of two calls; whether messages come or not.
const RECVS: u64 = 2 * CALL;

/// WRITEs or READs that a connection has under way.
const UNDER_WAY: u64 = 2;

/// Within what time connections are made.
const SET_UP: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Connection {
    /// The client's host and the server's, and their queue pairs.
    ends: [(u16, Qp); 2],
    /// When the call under way began.
    began: Instant,
    /// Messages that the server has and did not answer.
    unanswered: u64,
    /// By end, SENDs to post when there is room.
    due: [u64; 2],
    done: u64,
    /// When a call, WRITE or READ of it has ended last.
    done_at: Option<Instant>,
}

/// A work request that has not completed.
#[derive(Clone, Copy, Debug)]
struct Wr {
    connection: usize,
    end: usize,
    posted_at: Instant,
}

/// All hosts, the network between them, and what their applications have under way.
#[derive(Debug)]
pub struct Run {
    options: Options,
    now: Instant,
    network: Network,
    hosts: Vec<Host>,
    connections: Vec<Connection>,
    /// Connections whose SENDs of a call the server has, and has not answered.
    complete: usize,
    wrs: BTreeMap<u64, Wr>,
    posted: u64,
    died_at: Option<Instant>,
    outcome: Outcome,
    /// The counts of hosts that were told before.
    told: [u64; 3],
}

impl Run {
    /// Hosts whose connections are made, and have begun their work.
    ///
    /// # Panics
    /// If the settings cannot work, or connections are not made within 5 s.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let of_client = options.connections.div_ceil(options.clients.into());
        let len = match options.workload {
            Workload::Rpc | Workload::Ml => CALL_LEN,
            Workload::Write(len) | Workload::Read(len) => len,
        };
        let hosts = (0..=options.clients).map(|number| {
            let connections = if number == 0 { options.connections } else { of_client };
            Host::new(number, &options, connections, u64::from(len).next_multiple_of(4096))
        });
        let mut run = Self {
            options,
            now: Instant::ZERO + Duration::from_secs(3600),
            network: Network::new(&options),
            hosts: hosts.collect(),
            connections: Vec::new(),
            complete: 0,
            wrs: BTreeMap::new(),
            posted: 0,
            died_at: None,
            outcome: Outcome::default(),
            told: [0; 3],
        };
        for connection in 0..options.connections {
            run.connect(1 + (connection % u32::from(options.clients)) as u16);
        }
        run.run_for(SET_UP);
        run.network.loss = options.loss;
        for connection in 0..run.connections.len() {
            for end in [0, 1] {
                assert_eq!(run.state(connection, end), Some(QpState::Ready), "{connection}");
            }
            run.begin(connection);
        }
        run
    }

    fn connect(&mut self, client: u16) {
        let number = self.connections.len();
        let ends = [client, 0].map(|host| {
            let is_stateless = (host == 0) == self.options.server_is_stateless;
            let role = if is_stateless { Role::Stateless } else { Role::Stateful };
            let Host { verbs, pd, cq, .. } = &mut self.hosts[usize::from(host)];
            let config = QpConfig { role, send_depth: 8, recv_depth: 8 };
            (host, verbs.create_qp(*pd, *cq, *cq, config).expect("a queue pair"))
        });
        let (host, qp) = ends[0];
        let verbs = &mut self.hosts[usize::from(host)].verbs;
        verbs.connect(self.now, qp).expect("it is new");
        let began = self.now;
        let (due, done_at) = ([0; 2], None);
        self.connections.push(Connection { ends, began, unanswered: 0, due, done: 0, done_at });
        self.offer(number, 0);
        self.turn_soon(host, self.now);
    }

    /// Takes what an end has to tell the other one to be set up.
    fn offer(&mut self, connection: usize, end: usize) {
        let (host, qp) = self.connections[connection].ends[end];
        let verbs = &mut self.hosts[usize::from(host)].verbs;
        while let Some(octets) = verbs.poll_message(self.now, qp) {
            let event = Event::Message { connection, end: 1 - end, octets };
            self.network.schedule(self.now + 2 * self.options.hop, event);
        }
    }

    fn state(&self, connection: usize, end: usize) -> Option<QpState> {
        let (host, qp) = self.connections[connection].ends[end];
        self.hosts[usize::from(host)].verbs.state(qp)
    }

    fn turn_soon(&mut self, host: u16, at: Instant) {
        let it = &mut self.hosts[usize::from(host)];
        let at = at.max(it.turned_at + TURN);
        if !it.is_dead && it.turn_at.is_none_or(|before| at < before) {
            it.turn_at = Some(at);
            self.network.schedule(at, Event::Turn(host));
        }
    }

    /// The application of a connection begins its work.
    fn begin(&mut self, connection: usize) {
        for end in [0, 1] {
            self.post_all(connection, end, WqeOp::Recv, RECVS);
        }
        match self.options.workload {
            Workload::Rpc | Workload::Ml => self.call(connection),
            Workload::Write(_) => {
                self.post_all(connection, 0, WqeOp::Write, UNDER_WAY);
            }
            Workload::Read(_) => {
                self.post_all(connection, 0, WqeOp::Read, UNDER_WAY);
            }
        }
    }

    fn post_all(&mut self, connection: usize, end: usize, op: WqeOp, count: u64) {
        (0..count).for_each(|_| assert!(self.post(connection, end, op), "queues are long enough"));
    }

    fn call(&mut self, connection: usize) {
        self.connections[connection].began = self.now;
        self.send(connection, 0, CALL);
    }

    /// Posts so many SENDs more, as soon as those before have completed that are too many.
    fn send(&mut self, connection: usize, end: usize, more: u64) {
        self.connections[connection].due[end] += more;
        while self.connections[connection].due[end] > 0 && self.post(connection, end, WqeOp::Send) {
            self.connections[connection].due[end] -= 1;
        }
    }

    /// Posts a work request. `false` if its queue is full, or its connection has failed.
    fn post(&mut self, connection: usize, end: usize, op: WqeOp) -> bool {
        let Connection { ends, .. } = &self.connections[connection];
        let ((host, qp), (peer, _)) = (ends[end], ends[1 - end]);
        let there = Remote { mr: self.hosts[usize::from(peer)].mr.id(), offset: 0 };
        let Host { verbs, mr, .. } = &mut self.hosts[usize::from(host)];
        let wr_id = self.posted;
        let (now, small) = (self.now, mr.slice(0, CALL_LEN));
        let posted = match (op, self.options.workload) {
            (WqeOp::Recv, _) => verbs.post_recv(now, qp, &RecvWr { wr_id, sge: small }),
            (WqeOp::Write, Workload::Write(len)) => {
                verbs.post_send(now, qp, &SendWr::write(wr_id, mr.slice(0, len), there))
            }
            (WqeOp::Read, Workload::Read(len)) => {
                verbs.post_send(now, qp, &SendWr::read(wr_id, mr.slice(0, len), there))
            }
            _ => verbs.post_send(now, qp, &SendWr::send(wr_id, small).inline()),
        };
        if posted.is_ok() {
            self.posted += 1;
            self.wrs.insert(wr_id, Wr { connection, end, posted_at: self.now });
            self.turn_soon(host, self.now);
        }
        posted.is_ok()
    }

    fn completed(&mut self, wc: &Wc) {
        let Some(Wr { connection, end, posted_at }) = self.wrs.remove(&wc.wr_id) else { return };
        if let Some(died_at) = self.died_at {
            let since = died_at.max(posted_at);
            let took = Duration::from_nanos(self.now.nanos_since(since));
            self.outcome.slowest_end = self.outcome.slowest_end.max(took);
        }
        if wc.status != WcStatus::Success {
            self.outcome.failed += 1;
            return;
        }
        match (wc.opcode, end) {
            (WqeOp::Recv, 0) => {
                let _ = self.post(connection, 0, WqeOp::Recv);
                self.done(connection, self.connections[connection].began);
                self.call(connection);
            }
            (WqeOp::Recv, _) => {
                let it = &mut self.connections[connection];
                it.unanswered += 1;
                if it.unanswered == CALL {
                    it.unanswered = 0;
                    self.got_call(connection);
                }
            }
            (op @ (WqeOp::Write | WqeOp::Read), _) => {
                self.done(connection, posted_at);
                let _ = self.post(connection, 0, op);
            }
            (WqeOp::Send, _) => self.send(connection, end, 0),
        }
    }

    /// The server has the SENDs of a call.
    fn got_call(&mut self, connection: usize) {
        if self.options.workload != Workload::Ml {
            return self.answer(connection);
        }
        self.complete += 1;
        if self.complete == self.connections.len() {
            self.complete = 0;
            (0..self.connections.len()).for_each(|it| self.answer(it));
        }
    }

    /// The server posts the RECVs of another call, and its SEND.
    fn answer(&mut self, connection: usize) {
        for _ in 0..CALL {
            let _ = self.post(connection, 1, WqeOp::Recv);
        }
        self.send(connection, 1, 1);
    }

    fn done(&mut self, connection: usize, since: Instant) {
        self.outcome.done += 1;
        self.outcome.took.push(self.now.nanos_since(since));
        let it = &mut self.connections[connection];
        it.done += 1;
        if let Some(before) = it.done_at.replace(self.now) {
            let gap = Duration::from_nanos(self.now.nanos_since(before));
            self.outcome.longest_gap = self.outcome.longest_gap.max(gap);
        }
    }

    /// The roles of each connection are to change, unless they do already: its stateful side asks.
    pub fn switch_roles(&mut self) {
        for connection in 0..self.connections.len() {
            for (host, qp) in self.connections[connection].ends {
                let verbs = &mut self.hosts[usize::from(host)].verbs;
                if verbs.is_stateful(qp) == Some(true) && verbs.switch_role(self.now, qp).is_ok() {
                    self.turn_soon(host, self.now);
                }
            }
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::AtSwitch(packet) => self.network.forward(self.now, packet),
            Event::Arrival(packet) => {
                let to = packet.to;
                self.hosts[usize::from(to)].receive(packet);
                self.turn_soon(to, self.now);
            }
            Event::Message { connection, end, octets } => {
                let (host, qp) = self.connections[connection].ends[end];
                let verbs = &mut self.hosts[usize::from(host)].verbs;
                // It fails only if the connection has.
                let _ = verbs.handle_message(self.now, qp, &octets);
                self.turn_soon(host, self.now);
            }
            Event::Turn(host) => {
                let it = &mut self.hosts[usize::from(host)];
                if it.turn_at == Some(self.now) && !it.is_dead {
                    it.turn_at = None;
                    self.turn(host);
                }
            }
        }
    }

    fn turn(&mut self, host: u16) {
        self.outcome.turns += 1;
        let it = &mut self.hosts[usize::from(host)];
        it.turned_at = self.now;
        it.turn(self.now, &mut self.network);
        for wc in it.completions() {
            self.completed(&wc);
        }
        for connection in 0..self.connections.len() {
            let Connection { ends, .. } = self.connections[connection];
            for end in [0, 1] {
                let is_of_host = ends[end].0 == host;
                if is_of_host && self.state(connection, end) == Some(QpState::Init) {
                    self.offer(connection, end);
                }
            }
        }
        if let Some(next) = self.hosts[usize::from(host)].next_turn(self.now) {
            self.turn_soon(host, next);
        }
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some((at, event)) = self.network.next(end) {
            self.now = self.now.max(at);
            self.happens(event);
        }
        self.now = end;
    }

    /// Lets this host have so many turns more, and then never another one: it has died.
    pub fn kill_after(&mut self, host: u16, turns: u32) {
        let mut left = turns;
        let end = self.now + SET_UP;
        while left > 0
            && let Some((at, event)) = self.network.next(end)
        {
            self.now = self.now.max(at);
            left -= u32::from(matches!(event, Event::Turn(it) if it == host));
            self.happens(event);
        }
        self.hosts[usize::from(host)].is_dead = true;
        self.died_at = Some(self.now);
    }

    /// Returns the outcome since the last call.
    #[must_use]
    pub fn outcome(&mut self) -> Outcome {
        let mut outcome = core::mem::take(&mut self.outcome);
        let counted = |event| -> u64 {
            self.hosts.iter().map(|host| host.star.counters().events(event)).sum()
        };
        let now = [
            counted(StarEvent::Retransmit),
            self.hosts.iter().map(|it| it.lost).sum::<u64>(),
            counted(StarEvent::RolesChanged),
        ];
        let before = core::mem::replace(&mut self.told, now);
        (outcome.again, outcome.switched) = (now[0] - before[0], now[2] - before[2]);
        let done = self.connections.iter_mut().map(|it| core::mem::take(&mut it.done));
        outcome.by_connection = done.collect();
        let lives = |wr: &&Wr| {
            let (host, _) = self.connections[wr.connection].ends[wr.end];
            !self.hosts[usize::from(host)].is_dead
        };
        outcome.open = self.wrs.values().filter(lives).count();
        let [by_chance, at_ports] = core::mem::take(&mut self.network.lost);
        outcome.lost = [by_chance, at_ports, now[1] - before[1]];
        outcome.sent = core::mem::take(&mut self.network.sent);
        outcome.queued_max = core::mem::take(&mut self.network.queued_max);
        outcome
    }
}
