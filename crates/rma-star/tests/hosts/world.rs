//! All hosts of a run, and how the run goes.

use std::collections::BTreeMap;

use rma_star::{
    config::Framing,
    counters::StarEvent,
    library::{QpConfig, QpState, Role, SwitchError},
};

use crate::{
    host::{Host, HostSettings, address, bound, buffers, settings},
    network::{Faults, Happening, MICRO, MILLI, Network, Packet, Random, host_of},
    oracle::Queue,
    workloads::{Connection, End, Kind, Wr},
};

/// More turns than any run needs: who needs more asks for turns in which nothing happens.
const TURNS_MAX: u64 = 3_000_000;

/// How many connections are made anew after others have failed.
const REPLACEMENTS: usize = 24;

/// A run.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) random: Random,
    /// True time, in nanoseconds.
    pub(crate) now: u64,
    pub(crate) hosts: Vec<Host>,
    settings: Vec<HostSettings>,
    pub(crate) network: Network,
    pub(crate) connections: Vec<Connection>,
    /// The work that is posted and has not completed.
    pub(crate) wrs: BTreeMap<u64, Wr>,
    /// How many work requests were posted.
    pub(crate) posted: u64,
    /// Nobody begins anything any longer.
    pub(crate) is_winding_down: bool,
    /// The pause of applications between two actions, in nanoseconds.
    pub(crate) think: u64,
    /// Whether some do what is not allowed.
    pub(crate) forbidden: bool,
    /// How often what has happened: how work requests have ended, and what hosts have counted.
    pub(crate) seen: BTreeMap<String, u64>,
    replacements: usize,
    calls: usize,
    /// Within this everything ends whose peer is dead (S1).
    bound: u64,
    turns: u64,
    buffers: Vec<Vec<u8>>,
}

impl World {
    /// Makes the world of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = Random(seed);
        let random = &mut random;
        let bad = random.below(4);
        let faults = Faults {
            loss: random.pick(&[0, 5, 20, 100, 200]) * bad.min(1),
            double: random.pick(&[0, 20, 200]) * bad.min(1),
            corrupt: random.pick(&[0, 0, 5, 30]),
            replay: random.pick(&[0, 0, 50]),
            jitter: random.pick(&[0, 20, 200, 5000]) * MICRO,
        };
        let latency = random.pick(&[1, 5, 100, 1000]) * MICRO;
        let network = Network::new(Random(random.next()), faults, latency);
        let (star, verbs) = settings(random);
        let bound = bound(&star, &verbs);
        let topology = random.below(5);
        let hosts = 2 + random.below(if topology == 0 { 3 } else { 7 }) as usize;
        let settings: Vec<_> = (0..hosts)
            .map(|number| {
                let mut star = star;
                star.framing = random.pick(&[Framing::Faithful, Framing::Fused]);
                let engines = 1 + number as u16 % 3;
                let applications = 1 + random.below(2) as usize;
                HostSettings { star, verbs, engines, applications }
            })
            .collect();
        let hosts =
            (0..hosts).map(|number| Host::start(number, 0, &settings[number], random)).collect();
        let mut world = Self {
            now: 0,
            hosts,
            settings,
            network,
            connections: Vec::new(),
            wrs: BTreeMap::new(),
            posted: 0,
            is_winding_down: false,
            think: random.pick(&[0, 20 * MICRO, 2 * MILLI]),
            forbidden: random.below(3) == 0,
            seen: BTreeMap::new(),
            replacements: REPLACEMENTS,
            calls: 4 + random.below(30) as usize,
            bound,
            turns: 0,
            buffers: buffers(),
            random: random.clone(),
        };
        world.populate(topology);
        world.plan_mishaps();
        world
    }

    fn place(&mut self, host: usize) -> (usize, usize) {
        let applications = self.hosts[host].applications.len() as u64;
        (host, self.random.below(applications) as usize)
    }

    /// Makes the connections that there are at first.
    fn populate(&mut self, topology: u64) {
        let hosts = self.hosts.len() as u64;
        if topology == 0 || topology == 4 {
            for number in 0..1 + self.random.below(6) {
                let a = self.random.below(hosts);
                let b = (a + 1 + self.random.below(hosts - 1)) % hosts;
                let (a, b) = (self.place(a as usize), self.place(b as usize));
                let longest = if number == 0 { 64 << 10 } else { 5000 };
                let len_max = self.random.pick(&[64, 1500, longest, longest]);
                let stateless = self.random.pick(&[Some(0), Some(1), None]);
                self.connect(Kind::Mixed { len_max }, [a, b], stateless);
            }
        }
        if topology > 0 {
            let server = self.place(0);
            let clients = self.random.pick(&[1, 4, 12, 64]);
            let kind = if topology == 2 { Kind::Ml(0) } else { Kind::Rpc };
            for number in 0..clients {
                let host = 1 + number % (hosts as usize - 1);
                let client = self.place(host);
                // Sometimes the server has the state of a few, or both sides have it.
                let stateless = self.random.pick(&[Some(0), None, None, Some(1), Some(1), Some(1)]);
                self.connect(kind, [client, server], stateless);
            }
        }
    }

    fn plan_mishaps(&mut self) {
        let hosts = self.hosts.len() as u64;
        for _ in 0..self.random.below(8) {
            let within = self.random.pick(&[3, 60]);
            let at = self.random.below(within * MILLI);
            let host = self.random.below(hosts) as usize;
            let times = [MILLI, 15 * MILLI, 60 * MILLI, 700 * MILLI, 2 * self.bound];
            let nanos = self.random.pick(&times);
            let event = match self.random.below(8) {
                0..3 => Happening::Pause { host, nanos },
                3 => Happening::Kill { host },
                4 => {
                    let other = (host + 1) % hosts as usize;
                    Happening::Cut { hosts: [host, other], nanos: nanos.min(self.bound) }
                }
                _ => Happening::Close { draw: self.random.next() },
            };
            self.network.schedule(at, event);
        }
        let switches = self.random.pick(&[0, 0, 3, 40]);
        for _ in 0..switches {
            let within = self.random.pick(&[10, 200, 2000]);
            let (at, draw) = (self.random.below(within * MILLI), self.random.next());
            self.network.schedule(at, Happening::Switch { draw });
        }
    }

    /// A connection between applications, which are told by host and number.
    fn connect(&mut self, kind: Kind, places: [(usize, usize); 2], stateless: Option<usize>) {
        let connection = self.connections.len();
        let ends: Vec<_> = (0..2)
            .map(|end| {
                let (host, application) = places[end];
                let life = self.hosts[host].life;
                let it = &mut self.hosts[host].applications[application];
                let role = match stateless {
                    None => [Role::Auto, Role::Rc][end],
                    Some(stateless) if stateless == end => Role::Stateless,
                    Some(_) => Role::Stateful,
                };
                let config = QpConfig { role, send_depth: 16, recv_depth: 16 };
                let qp = it.verbs.create_qp(it.pd, it.cq, it.cq, config).expect("a queue pair");
                it.ends.push((connection, end));
                let recvs = match kind {
                    Kind::Mixed { len_max } if len_max > 5000 => 2,
                    Kind::Mixed { .. } => 4,
                    _ if end == 0 => 2,
                    _ => 6,
                };
                End::new((host, life, application), qp, recvs)
            })
            .collect();
        let ends = ends.try_into().expect("two");
        let directions = Default::default();
        self.connections.push(Connection { kind, ends, stateless, is_replaced: false, directions });
        self.set_work(connection, self.calls);
        let first = self.random.below(2) as usize;
        let End { host, application, qp, .. } = self.connections[connection].ends[first];
        let now = self.hosts[host].now(self.now);
        let verbs = &mut self.hosts[host].applications[application].verbs;
        verbs.connect(now, qp).expect("it is new");
        self.connections[connection].ends[first].has_begun = true;
        self.turn_soon(host, self.now + MICRO);
    }

    /// A connection has failed, or was closed: sometimes there is another one instead.
    pub(crate) fn replace(&mut self, connection: usize) {
        if self.is_winding_down || self.replacements == 0 || self.random.below(3) == 0 {
            return;
        }
        let Connection { kind, ends, stateless, is_replaced, .. } =
            &mut self.connections[connection];
        if core::mem::replace(is_replaced, true) {
            return;
        }
        let (kind, stateless) = (*kind, *stateless);
        self.replacements -= 1;
        let places = ends.each_ref().map(|end| (end.host, end.application));
        self.connect(kind, places, stateless);
    }

    fn turn_soon(&mut self, host: usize, at: u64) {
        let it = &mut self.hosts[host];
        let at = at.max(it.busy_until);
        if at < it.turn_at {
            it.turn_at = at;
            self.network.schedule(at, Happening::Turn { host });
        }
    }

    fn kill(&mut self, host: usize) {
        let life = self.hosts[host].life;
        let connections = &self.connections;
        self.wrs.retain(|_, wr| connections[wr.connection].ends[wr.end].host != host);
        let settings = &self.settings[host];
        self.hosts[host] = Host::start(host, life + 1, settings, &mut self.random);
        self.hosts[host].busy_until = self.now + self.random.below(20 * MILLI);
        for connection in 0..self.connections.len() {
            let is_of = |end: &End| end.host == host && end.life == life;
            if self.connections[connection].ends.iter().any(is_of) {
                self.replace(connection);
            }
        }
    }

    /// One of the ends that are as they should be.
    fn any_end(&self, draw: u64, is_so: impl Fn(QpState) -> bool) -> Option<(usize, usize)> {
        let open: Vec<_> = (0..self.connections.len())
            .flat_map(|connection| [(connection, 0), (connection, 1)])
            .filter(|&(connection, end)| self.state(connection, end).is_some_and(&is_so))
            .collect();
        open.get((draw as usize).checked_rem(open.len())?).copied()
    }

    /// The roles of a connection that is in use are to change: the stateful side tries, or the
    /// other asks it to.
    fn switch(&mut self, draw: u64) {
        let Some((connection, end)) = self.any_end(draw, |it| it == QpState::Ready) else { return };
        let End { host, application, qp, .. } = self.connections[connection].ends[end];
        let now = self.hosts[host].now(self.now);
        let verbs = &mut self.hosts[host].applications[application].verbs;
        let is_begun = match verbs.switch_role(now, qp) {
            Ok(()) => true,
            Err(SwitchError::UnderWay) => false,
            Err(SwitchError::BothStateful) => {
                assert_eq!(verbs.is_rc(qp), Some(true), "only there is no other side");
                false
            }
            Err(error) => panic!("a switch of a connection that is ready: {error}"),
        };
        *self.seen.entry("switches asked for".into()).or_default() += u64::from(is_begun);
        self.turn_soon(host, self.now + MICRO);
    }

    fn close(&mut self, draw: u64) {
        if let Some((connection, end)) = self.any_end(draw, |_| true) {
            self.close_end(connection, end);
            self.replace(connection);
        }
    }

    fn close_end(&mut self, connection: usize, end: usize) {
        let it = &mut self.connections[connection].ends[end];
        it.is_open = false;
        let (host, application, qp) = (it.host, it.application, it.qp);
        let now = self.hosts[host].now(self.now);
        self.hosts[host].applications[application].verbs.close(now, qp);
        self.turn_soon(host, self.now + MICRO);
    }

    fn happens(&mut self, event: Happening) {
        match event {
            Happening::Arrival(packet) => self.arrives(packet),
            Happening::Message { connection, end, octets } => {
                let host = self.connections[connection].ends[end].host;
                self.hosts[host].messages.push_back((connection, end, octets));
                self.turn_soon(host, self.now);
            }
            Happening::Turn { host } => {
                if self.hosts[host].turn_at == self.now {
                    self.hosts[host].turn_at = u64::MAX;
                    self.turn(host);
                }
            }
            Happening::Kill { host } => {
                self.kill(host);
                self.turn_soon(host, self.now);
            }
            Happening::Pause { host, nanos } => {
                let it = &mut self.hosts[host];
                it.busy_until = it.busy_until.max(self.now + nanos);
                it.turn_at = u64::MAX;
                self.turn_soon(host, self.now);
            }
            Happening::Cut { hosts, nanos } => self.network.cut(hosts, self.now + nanos),
            Happening::Switch { draw } => self.switch(draw),
            Happening::Close { draw } => self.close(draw),
        }
    }

    fn arrives(&mut self, packet: Packet) {
        let host = host_of(packet.destination);
        assert_eq!(packet.destination, address(host));
        self.hosts[host].receive(packet);
        self.turn_soon(host, self.now);
    }

    /// A host's engine and applications look around.
    fn turn(&mut self, host: usize) {
        self.turns += 1;
        assert!(self.turns < TURNS_MAX, "turns in which nothing happens, at host {host}");
        let now = self.now;
        self.hosts[host].handle_frames(now);
        self.hosts[host].engine(now, &mut self.network, &mut self.buffers);
        let mut has_done = false;
        for application in 0..self.hosts[host].applications.len() {
            // Applications are late now and then.
            if self.random.below(8) == 0 {
                let late = now + self.random.below(300 * MICRO);
                let it = &mut self.hosts[host].applications[application];
                it.wakes_at = it.wakes_at.min(late);
                continue;
            }
            has_done |= self.application(host, application);
        }
        // Applications have to see these reports.
        has_done |= self.hosts[host].engine(now, &mut self.network, &mut self.buffers);
        let it = &self.hosts[host];
        let next = if has_done || it.is_busy() { Some(now) } else { it.timeout() };
        if let Some(next) = next {
            self.turn_soon(host, next.max(now + MICRO));
        }
    }

    fn application(&mut self, host: usize, application: usize) -> bool {
        let it = &mut self.hosts[host];
        let local = it.clock.at(self.now);
        it.applications[application].wakes_at = u64::MAX;
        let mut has_done = it.applications[application].verbs.poll(local) > 0;
        let mut others = Vec::new();
        while let Some((connection, end, octets)) = self.hosts[host].messages.pop_front() {
            let to = &self.connections[connection].ends[end];
            let (qp, is_there) = (to.qp, self.lives(connection, end));
            if to.application != application && is_there {
                others.push((connection, end, octets));
            } else if is_there {
                // It may have failed meanwhile.
                let verbs = &mut self.hosts[host].applications[application].verbs;
                let is_taken = verbs.handle_message(local, qp, &octets).is_ok();
                self.connections[connection].ends[end].has_begun |= is_taken;
                has_done |= is_taken;
            }
        }
        self.hosts[host].messages.extend(others);
        for wc in self.hosts[host].completions(application) {
            self.completed(&wc);
            has_done = true;
        }
        for (connection, end) in self.hosts[host].applications[application].ends.clone() {
            has_done |= self.step(connection, end);
        }
        has_done
    }

    fn run_for(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while let Some((at, event)) = self.network.next(end) {
            self.now = self.now.max(at);
            self.happens(event);
        }
        self.now = end;
    }

    /// Faults, then none: all work gets done or fails at both sides, all that fails does so in
    /// time, and nothing changes afterwards.
    pub(crate) fn run(&mut self) {
        let faulty = 60 * MILLI + self.random.below(2 * self.bound);
        self.run_for(faulty);
        // Hosts that stood still go on.
        self.is_winding_down = false;
        self.replacements = 0;
        self.network.mend();
        for host in 0..self.hosts.len() {
            self.hosts[host].busy_until = self.now;
            self.hosts[host].turn_at = u64::MAX;
            self.turn_soon(host, self.now);
        }
        self.run_for(2 * self.bound);
        self.is_winding_down = true;
        let ready = self.check_states();
        self.check_progress(&ready);
        self.check_the_end();
    }

    /// Both ends of each connection are ready, and all work of those is done, or both have failed.
    fn check_states(&self) -> Vec<usize> {
        let mut ready = Vec::new();
        for (number, connection) in self.connections.iter().enumerate() {
            // A queue pair that nobody offers a connection has no time in which it must.
            let begun =
                |end: usize| self.state(number, end).filter(|_| connection.ends[end].has_begun);
            let states = [0, 1].map(begun);
            match states {
                [Some(QpState::Ready), Some(QpState::Ready)] => {
                    for end in &connection.ends {
                        assert!(end.queues[0].is_empty(), "stuck: {connection:?}");
                    }
                    let is_mixed = matches!(connection.kind, Kind::Mixed { .. });
                    let [client, server] = &connection.ends;
                    let is_done = client.to_do == 0 && (server.to_do == 0 || !is_mixed);
                    assert!(is_done, "no progress: {connection:?}");
                    ready.push(number);
                }
                [None, None] => {}
                _ => panic!("connection {number} is {states:?}: {connection:?}"),
            }
        }
        ready
    }

    /// Connections carry something in each direction.
    fn check_progress(&mut self, ready: &[usize]) {
        for &connection in ready {
            for end in 0..2 {
                assert!(self.post_send(connection, end, 32), "a SEND more");
                let host = self.connections[connection].ends[end].host;
                self.turn_soon(host, self.now + MICRO);
            }
        }
        self.run_for(self.bound);
        for &connection in ready {
            let it = &self.connections[connection];
            for (end, direction) in it.directions.iter().enumerate() {
                assert!(it.ends[end].queues[0].is_empty(), "SEND {end} of {it:?}");
                assert!(self.state(connection, end) == Some(QpState::Ready), "{it:?}");
                assert_eq!(direction.done, direction.received, "{it:?}");
            }
        }
    }

    /// All is closed, all is complete, and memory is what it must be.
    fn check_the_end(&mut self) {
        for connection in 0..self.connections.len() {
            for end in 0..2 {
                if self.state(connection, end).is_some() {
                    self.close_end(connection, end);
                }
            }
        }
        self.run_for(self.bound);
        assert!(self.wrs.is_empty(), "never completed: {:?}", self.wrs);
        for (number, connection) in self.connections.iter().enumerate() {
            for end in 0..2 {
                let is_over = connection.ends[end].queues.iter().all(Queue::is_empty);
                assert!(is_over || !self.lives(number, end));
                let it = &connection.directions[end];
                let is_told = it.done <= it.received || !self.lives(number, 1 - end);
                assert!(is_told, "OK, and the peer has not got it: {connection:?}");
            }
        }
        for host in &self.hosts {
            assert_eq!(host.stateful_connections(), 0, "of host {:?}", host.name());
            for (star, event) in host.stars.iter().flat_map(|it| StarEvent::ALL.map(|of| (it, of)))
            {
                let count = star.counters().events(event);
                *self.seen.entry(format!("{event:?}")).or_default() += count;
            }
            for application in &host.applications {
                application.memory.check();
                let strange = application.verbs.strange_reports();
                assert_eq!(strange, 0, "reports of host {:?} that make no sense", host.name());
            }
        }
    }

    /// Sums up the run, in a few words.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{} hosts, {} connections, {} work requests, {} frames, {} turns, {} ms, {:?} {:?}",
            self.hosts.len(),
            self.connections.len(),
            self.posted,
            self.network.carried,
            self.turns,
            self.now / MILLI,
            self.seen,
            self.network.faults,
        )
    }
}
