//! The workloads of applications: the paper's RPC and ML (§V), and everything at once.

use rma_star::{
    library::{PostError, Qp, QpState, RecvWr, Remote, SendWr, Wc},
    limits::INLINE_MAX,
    verbs::{WcStatus, WqeOp},
};

use crate::{
    network::{MICRO, MILLI},
    oracle::{Buffer, Direction, Memory, Message, Part, Queue, SOURCE, first_difference, pattern},
    world::World,
};

/// A call of RPC and ML is so many SENDs to the server, and one back.
const CALL: usize = 3;

/// Bytes of each of those.
const CALL_LEN: u32 = 32;

/// The most work requests that a [`Kind::Mixed`] application has in a send queue.
const WINDOW: usize = 4;

/// The purpose of a connection. The client is end 0 of it, the server end 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The server answers each call.
    Rpc,
    /// The server answers all clients when each has called. Which group of clients.
    Ml(usize),
    /// SENDs, READs and WRITEs by both sides, of up to so many bytes, some of which may not be.
    Mixed { len_max: u32 },
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) host: usize,
    /// The life of the host.
    pub(crate) life: u64,
    pub(crate) application: usize,
    pub(crate) qp: Qp,
    /// Its application has not closed it.
    pub(crate) is_open: bool,
    /// Its library has heard of the connection.
    pub(crate) has_begun: bool,
    /// The send queue and the receive queue.
    pub(crate) queues: [Queue; 2],
    /// Calls or work requests that are left.
    pub(crate) to_do: usize,
    /// When its application does the next thing.
    next_at: u64,
    recvs: usize,
    /// SENDs of a call that are left.
    to_send: usize,
    waits_for_answer: bool,
    unanswered: usize,
    answers_due: usize,
}

impl End {
    pub(crate) fn new(
        (host, life, application): (usize, u64, usize),
        qp: Qp,
        recvs: usize,
    ) -> Self {
        Self {
            host,
            life,
            application,
            qp,
            is_open: true,
            has_begun: false,
            queues: Default::default(),
            to_do: 0,
            next_at: 0,
            recvs,
            to_send: 0,
            waits_for_answer: false,
            unanswered: 0,
            answers_due: 0,
        }
    }
}

/// A connection, and all that its ends have to do and have said.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) kind: Kind,
    pub(crate) ends: [End; 2],
    /// The end that is the stateless side; `None` if both are stateful.
    pub(crate) stateless: Option<usize>,
    /// It is over, and there is another one instead.
    pub(crate) is_replaced: bool,
    /// The messages that each end has sent.
    pub(crate) directions: [Direction; 2],
}

/// The remote end of a READ or WRITE.
#[derive(Debug)]
enum There {
    Nothing,
    /// From here on in what the peer lets be read.
    Source(u64),
    Target(Buffer),
    /// An access that the peer does not allow.
    Forbidden,
}

/// A work request that was posted.
#[derive(Debug)]
pub(crate) struct Wr {
    pub(crate) connection: usize,
    pub(crate) end: usize,
    op: WqeOp,
    here: Buffer,
    there: There,
    message: Message,
}

impl World {
    fn memory(&mut self, connection: usize, end: usize) -> &mut Memory {
        let End { host, application, .. } = self.connections[connection].ends[end];
        &mut self.hosts[host].applications[application].memory
    }

    /// Whether the host of an end has not been killed since.
    pub(crate) fn lives(&self, connection: usize, end: usize) -> bool {
        let end = &self.connections[connection].ends[end];
        self.hosts[end.host].life == end.life
    }

    /// Returns the state of an end; `None` if it is closed, or its host was killed.
    pub(crate) fn state(&self, connection: usize, end: usize) -> Option<QpState> {
        let End { host, application, qp, is_open, .. } = self.connections[connection].ends[end];
        let is_there = is_open && self.lives(connection, end);
        is_there.then(|| self.hosts[host].applications[application].verbs.state(qp))?
    }

    /// The application of one end looks around. Whether it has done something.
    pub(crate) fn step(&mut self, connection: usize, end: usize) -> bool {
        let End { host, application, qp, .. } = self.connections[connection].ends[end];
        match self.state(connection, end) {
            None => false,
            Some(QpState::Init) => {
                let now = self.hosts[host].now(self.now);
                let verbs = &mut self.hosts[host].applications[application].verbs;
                let Some(octets) = verbs.poll_message(now, qp) else { return false };
                self.network.tell(self.now, connection, 1 - end, octets);
                true
            }
            Some(QpState::Ready) => {
                let received = self.post_recvs(connection, end);
                let worked = !self.is_winding_down && self.work(connection, end);
                received || worked
            }
            Some(QpState::Error) => {
                let it = &mut self.connections[connection].ends[end];
                let is_over = it.queues.iter().all(Queue::is_empty);
                if is_over {
                    it.is_open = false;
                    let now = self.hosts[host].now(self.now);
                    self.hosts[host].applications[application].verbs.close(now, qp);
                    self.replace(connection);
                }
                is_over
            }
        }
    }

    /// An application looks around not later than this.
    fn wake(&mut self, connection: usize, end: usize, at: u64) {
        let End { host, application, .. } = self.connections[connection].ends[end];
        let application = &mut self.hosts[host].applications[application];
        application.wakes_at = application.wakes_at.min(at);
    }

    fn post_recvs(&mut self, connection: usize, end: usize) -> bool {
        let mut has_posted = false;
        let Connection { kind, ends, .. } = &self.connections[connection];
        let len = if let Kind::Mixed { len_max } = *kind { len_max } else { CALL_LEN };
        let missing = ends[end].recvs.saturating_sub(ends[end].queues[1].len());
        for _ in 0..missing {
            let Some(here) = self.memory(connection, end).take(Part::Local, len) else {
                self.wake(connection, end, self.now + 100 * MICRO);
                break;
            };
            let message = Message { tag: 0, len, immediate: None, is_write: false };
            let (op, there) = (WqeOp::Recv, There::Nothing);
            if !self.post(Wr { connection, end, op, here, there, message }) {
                break;
            }
            has_posted = true;
        }
        has_posted
    }

    fn work(&mut self, connection: usize, end: usize) -> bool {
        let (kind, now) = (self.connections[connection].kind, self.now);
        let it = &mut self.connections[connection].ends[end];
        match (kind, end) {
            (Kind::Mixed { len_max }, _) => {
                if it.to_do == 0 || it.queues[0].len() >= WINDOW {
                    return false;
                }
                if it.next_at > now {
                    let at = it.next_at;
                    self.wake(connection, end, at);
                    return false;
                }
                it.next_at = now + self.random.below(2 * self.think.max(1));
                let has_posted = self.post_any(connection, end, len_max);
                self.wake(connection, end, now + 100 * MICRO);
                self.connections[connection].ends[end].to_do -= usize::from(has_posted);
                has_posted
            }
            (_, 0) => {
                if it.to_send == 0 && !it.waits_for_answer && it.to_do > 0 {
                    if it.next_at > now {
                        let at = it.next_at;
                        self.wake(connection, end, at);
                        return false;
                    }
                    it.next_at = now + self.random.below(2 * self.think.max(1));
                    (it.to_send, it.waits_for_answer) = (CALL, true);
                }
                let mut sent = 0;
                while self.connections[connection].ends[end].to_send > 0
                    && self.post_send(connection, end, CALL_LEN)
                {
                    self.connections[connection].ends[end].to_send -= 1;
                    sent += 1;
                }
                sent > 0
            }
            (Kind::Rpc, _) => {
                it.answers_due += it.unanswered / CALL;
                it.unanswered %= CALL;
                self.post_answers(connection, end)
            }
            (Kind::Ml(group), _) => {
                self.look_after_group(group);
                self.post_answers(connection, end)
            }
        }
    }

    fn post_answers(&mut self, connection: usize, end: usize) -> bool {
        let mut has_posted = false;
        while self.connections[connection].ends[end].answers_due > 0
            && self.post_send(connection, end, CALL_LEN)
        {
            let it = &mut self.connections[connection].ends[end];
            it.answers_due -= 1;
            it.to_do = it.to_do.saturating_sub(1);
            has_posted = true;
        }
        has_posted
    }

    /// ML: all clients are answered when each that is there, and has calls left, has called.
    fn look_after_group(&mut self, group: usize) {
        let members: Vec<_> = (0..self.connections.len())
            .filter(|&at| self.connections[at].kind == Kind::Ml(group))
            .filter(|&at| self.state(at, 1) == Some(QpState::Ready))
            .filter(|&at| self.connections[at].ends[1].to_do > 0)
            .collect();
        let have_called = |&at: &usize| {
            let end = &self.connections[at].ends[1];
            end.unanswered >= CALL
        };
        if members.iter().all(have_called) {
            for at in members {
                let end = &mut self.connections[at].ends[1];
                end.unanswered -= CALL;
                end.answers_due += 1;
                self.wake(at, 1, self.now + MICRO);
            }
        }
    }

    fn len(&mut self, len_max: u32) -> u32 {
        let max = match self.random.below(5) {
            0 => 2,
            1 => 66,
            2 => 1500,
            _ => len_max + 1,
        };
        self.random.below(u64::from(max.min(len_max + 1))) as u32
    }

    /// A SEND of something new. Whether it was posted.
    pub(crate) fn post_send(&mut self, connection: usize, end: usize, len: u32) -> bool {
        let immediate = self.immediate();
        self.give(connection, end, WqeOp::Send, (There::Nothing, len, immediate))
    }

    /// One of four has an immediate.
    fn immediate(&mut self) -> Option<u32> {
        let draw = self.random.next();
        (draw & 3 == 0).then_some((draw >> 32) as u32)
    }

    /// A work request that gives something new.
    fn give(
        &mut self,
        connection: usize,
        end: usize,
        op: WqeOp,
        (there, len, immediate): (There, u32, Option<u32>),
    ) -> bool {
        let tag = self.random.next();
        let memory = self.memory(connection, end);
        let Some(here) = memory.take(Part::Local, len) else {
            if let There::Target(buffer) = there {
                self.memory(connection, 1 - end).give_back(&buffer);
            }
            return false;
        };
        memory.write(&here, &pattern(tag, len as usize));
        let is_write = op == WqeOp::Write;
        let message = Message { tag, len, immediate, is_write };
        self.post(Wr { connection, end, op, here, there, message })
    }

    /// A SEND, READ or WRITE.
    fn post_any(&mut self, connection: usize, end: usize, len_max: u32) -> bool {
        let len = self.len(len_max);
        let peer_lives = self.lives(connection, 1 - end);
        match self.random.below(200) {
            0 if self.forbidden && len > 0 => {
                self.give(connection, end, WqeOp::Write, (There::Forbidden, len, None))
            }
            0..50 if peer_lives => {
                let Some(target) = self.memory(connection, 1 - end).take(Part::Target, len) else {
                    return false;
                };
                let immediate = self.immediate();
                self.give(connection, end, WqeOp::Write, (There::Target(target), len, immediate))
            }
            50..100 if peer_lives => {
                let Some(here) = self.memory(connection, end).take(Part::Local, len) else {
                    return false;
                };
                let there = There::Source(self.random.below(SOURCE - u64::from(len) + 1));
                let (op, is_write) = (WqeOp::Read, false);
                let message = Message { tag: 0, len, immediate: None, is_write };
                self.post(Wr { connection, end, op, here, there, message })
            }
            _ => self.post_send(connection, end, len),
        }
    }

    /// Posts a work request. If that is refused nothing has happened.
    fn post(&mut self, wr: Wr) -> bool {
        let Wr { connection, end, op, message, .. } = wr;
        let peer = &self.connections[connection].ends[1 - end];
        let peers = self.hosts[peer.host].applications[peer.application].mrs.each_ref();
        let [source, _, target] = peers.map(rma_star::library::Mr::id);
        let remote = match &wr.there {
            There::Nothing => Remote::default(),
            There::Source(offset) => Remote { mr: source, offset: *offset },
            There::Target(buffer) => Remote { mr: target, offset: buffer.offset },
            There::Forbidden => Remote { mr: source, offset: 0 },
        };
        let is_inline = self.random.below(2) == 0 && message.len <= INLINE_MAX as u32;
        let wr_id = self.posted;
        let it = &mut self.connections[connection].ends[end];
        let host = &mut self.hosts[it.host];
        let now = host.now(self.now);
        let application = &mut host.applications[it.application];
        let mr = &application.mrs[1];
        let sge = mr.slice(wr.here.offset, message.len);
        let mut send = match op {
            WqeOp::Read => SendWr::read(wr_id, sge, remote),
            WqeOp::Write => SendWr::write(wr_id, sge, remote),
            WqeOp::Send | WqeOp::Recv => SendWr::send(wr_id, sge),
        };
        if let Some(immediate) = message.immediate {
            send = send.with_imm(immediate);
        }
        if is_inline && matches!(op, WqeOp::Send | WqeOp::Write) {
            send = send.inline();
        }
        let posted = if op.is_recv() {
            application.verbs.post_recv(now, it.qp, &RecvWr { wr_id, sge })
        } else {
            application.verbs.post_send(now, it.qp, &send)
        };
        match posted {
            Ok(()) => {
                it.queues[usize::from(op.is_recv())].post(wr_id);
                if message.takes_recv(op) {
                    self.connections[connection].directions[end].send(message);
                }
                self.posted += 1;
                self.wrs.insert(wr_id, wr);
                true
            }
            Err(error) => {
                let is_expected = matches!(
                    error,
                    PostError::QpInError
                        | PostError::QueueFull { .. }
                        | PostError::CqFull { .. }
                        | PostError::SlotsFull { .. }
                );
                assert!(is_expected, "{op:?} of {message:?}: {error}");
                self.memory(connection, end).give_back(&wr.here);
                if let There::Target(buffer) = &wr.there
                    && self.lives(connection, 1 - end)
                {
                    self.memory(connection, 1 - end).give_back(buffer);
                }
                false
            }
        }
    }

    /// A completion: is it true?
    pub(crate) fn completed(&mut self, wc: &Wc) {
        let wr = self.wrs.remove(&wc.wr_id).expect("each completes once, and was posted");
        let Wr { connection, end, op, message, .. } = wr;
        let what = format!("connection {connection}, end {end}: {wc:?} of {message:?}");
        assert_eq!(wc.opcode, op, "{what}");
        let it = &mut self.connections[connection];
        it.ends[end].queues[usize::from(op.is_recv())].complete(wc.wr_id, wc.status);
        *self.seen.entry(format!("{op:?} {:?}", wc.status)).or_default() += 1;
        let is_success = wc.status == WcStatus::Success;
        self.check_remote(&wr, is_success, &what);
        let it = &mut self.connections[connection];
        if op.is_recv() && is_success {
            let message = it.directions[1 - end].receive();
            let bytes = self.memory(connection, end).read(&wr.here);
            let told = (wc.byte_len, wc.imm, wc.is_of_write);
            assert_eq!(told, (message.len, message.immediate, message.is_write), "{what}");
            let len = if message.is_write { 0 } else { message.len as usize };
            let rest = &bytes[len..];
            let (is, must) = (&bytes[..len], pattern(message.tag, len));
            assert!(is == must, "{what}: {}", first_difference("a message", is, &must));
            let before = self.memory(connection, end).before(&wr.here);
            assert!(rest == &before[len..], "{what}: bytes behind the message have changed");
            let end = &mut self.connections[connection].ends[end];
            end.unanswered += 1;
            if end.waits_for_answer {
                end.waits_for_answer = false;
                end.to_do -= 1;
            }
        } else if message.takes_recv(op) && is_success {
            it.directions[end].acknowledge(message);
        }
        if matches!(op, WqeOp::Send | WqeOp::Write) {
            let memory = self.memory(connection, end);
            assert!(memory.read(&wr.here) == memory.before(&wr.here), "{what}: what was given");
        }
        assert!(!is_success || op.is_recv() || wc.byte_len == message.len, "{what}");
        self.memory(connection, end).give_back(&wr.here);
    }

    /// The remote end of a READ or WRITE that has completed.
    fn check_remote(&mut self, wr: &Wr, is_success: bool, what: &str) {
        let (connection, end) = (wr.connection, wr.end);
        assert!(!(is_success && matches!(wr.there, There::Forbidden)), "{what}: is not allowed");
        if !self.lives(connection, 1 - end) {
            return;
        }
        match &wr.there {
            There::Source(offset) if is_success => {
                let is = self.memory(connection, end).read(&wr.here);
                let must = self.memory(connection, 1 - end).source(*offset, wr.message.len);
                assert!(is == must, "{what}: {}", first_difference("what was read", &is, must));
            }
            There::Target(buffer) => {
                let new = pattern(wr.message.tag, wr.message.len as usize);
                let memory = self.memory(connection, 1 - end);
                let (is, old) = (memory.read(buffer), memory.before(buffer));
                let mut bytes = is.iter().zip(&new).zip(old);
                let is_either = bytes.all(|((is, new), old)| is == new || is == old);
                assert!(is_either, "{what}: something else was written");
                let difference = || first_difference("what was written", &is, &new);
                assert!(!is_success || is == new, "{what}: {}", difference());
                memory.give_back(buffer);
            }
            _ => {}
        }
    }

    /// When work ends that would go on: nobody has something left to do.
    pub(crate) fn set_work(&mut self, connection: usize, to_do: usize) {
        let now = self.now;
        for end in 0..2 {
            let next_at = now + self.random.below(MILLI);
            let it = &mut self.connections[connection].ends[end];
            (it.to_do, it.next_at) = (to_do, next_at);
        }
    }
}
