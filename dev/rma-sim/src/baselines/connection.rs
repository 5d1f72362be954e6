//! The two ends of a connection on which one host reads from another: packets in order, and
//! go-back-N where one is missing.
//!
//! Response packets are numbered. A request says which of them it wants. The responder takes
//! new requests in the order of these numbers only; the requester takes response packets so. At a
//! gap, or if its timer ends, the requester asks again for all that it still lacks, and the
//! responder goes back to what it is asked for.
//!
//! Invariants: the requester takes each number once, in order; the responder never expects a lower
//! number than before, so a request that comes late takes nothing back.

use std::collections::VecDeque;

use rma_core::time::Instant;

use super::work::OpId;

/// Response packets that a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The number of the first.
    pub(super) first: u64,
    /// The number after the last.
    pub(super) end: u64,
    /// How much payload the last has; all others are full.
    pub(super) last_len: u32,
}

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How many reads may be under way.
    pub(super) reads: usize,
    /// The most payload of a packet.
    pub(super) payload: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    op: OpId,
    len: u64,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    op: OpId,
    wants: Request,
}

/// A packet to send, and whether it was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent<T> {
    pub(super) packet: T,
    pub(super) again: bool,
}

/// The end that reads.
#[derive(Debug, Default)]
pub(super) struct Requester {
    waiting: VecDeque<Waiting>,
    under_way: VecDeque<Read>,
    /// Requests to be sent.
    requests: VecDeque<Request>,
    /// The first number that no read has.
    next: u64,
    /// The number of the next packet that it takes.
    expected: u64,
    /// The first number that it has never asked for.
    asked: u64,
    /// The number that it expected when it went back last, for a gap.
    gap: Option<u64>,
    /// When it goes back without progress; `None` if nothing is under way.
    pub(super) deadline: Option<Instant>,
    /// How often it has gone back since there was progress, because its timer ended.
    pub(super) timeouts: u32,
    /// Whether somebody looks at the deadline.
    pub(super) is_watched: bool,
}

/// The effect of a response packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// It was the next one.
    Taken,
    /// It was the last one of this op.
    Completed(OpId),
    /// One before it is missing.
    Gap,
    /// It had come before.
    Old,
}

impl Requester {
    /// An op has been posted.
    pub(super) fn post(&mut self, op: OpId, len: u64) {
        self.waiting.push_back(Waiting { op, len });
    }

    /// Begins the reads that may begin. Returns how many requests there are to send for that.
    pub(super) fn begin(&mut self, limits: Limits) -> usize {
        let mut begun = 0;
        while self.under_way.len() < limits.reads
            && let Some(Waiting { op, len }) = self.waiting.pop_front()
        {
            let payload = u64::from(limits.payload);
            let packets = len.div_ceil(payload).max(1);
            let last_len = (len - (packets - 1) * payload) as u32;
            let wants = Request { first: self.next, end: self.next + packets, last_len };
            self.next = wants.end;
            self.under_way.push_back(Read { op, wants });
            self.requests.push_back(wants);
            begun += 1;
        }
        begun
    }

    /// The next request to send.
    pub(super) fn take(&mut self) -> Option<Sent<Request>> {
        let packet = self.requests.pop_front()?;
        let again = packet.first < self.asked;
        self.asked = self.asked.max(packet.end);
        Some(Sent { packet, again })
    }

    pub(super) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// A response packet has come.
    pub(super) fn handle(&mut self, number: u64) -> Received {
        if number > self.expected {
            return Received::Gap;
        }
        if number < self.expected {
            return Received::Old;
        }
        let Some(read) = self.under_way.front().copied() else { return Received::Old };
        self.expected += 1;
        if self.expected < read.wants.end {
            return Received::Taken;
        }
        self.under_way.pop_front();
        Received::Completed(read.op)
    }

    /// Goes back for a gap, unless it has for this one. Returns how many requests there are to
    /// send.
    pub(super) fn handle_gap(&mut self) -> usize {
        if self.gap == Some(self.expected) {
            return 0;
        }
        self.gap = Some(self.expected);
        self.go_back()
    }

    /// Asks again for all that it lacks. Returns how many requests there are to send.
    pub(super) fn go_back(&mut self) -> usize {
        self.requests.clear();
        let lacks =
            |read: &Read| Request { first: read.wants.first.max(self.expected), ..read.wants };
        self.requests.extend(self.under_way.iter().map(lacks));
        self.requests.len()
    }
}

/// The end that is read from.
#[derive(Debug, Default)]
pub(super) struct Responder {
    /// The rest of requests that is to be sent, in the order of numbers.
    accepted: VecDeque<Request>,
    /// The first number that it has not been asked for; it never goes back.
    expected: u64,
    /// The first number that it has never sent.
    sent: u64,
    /// The number that it expected when it refused a request last.
    refused: Option<u64>,
}

/// The effect of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It is to be served.
    Accepted,
    /// One that says the same waits.
    Waits,
    /// One before it is missing, and the requester is to be told.
    Refused,
    /// One before it is missing, and the requester has been told.
    Gap,
}

/// A response packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) number: u64,
    pub(super) len: u32,
    pub(super) is_last: bool,
}

impl Responder {
    /// A request has come.
    pub(super) fn handle(&mut self, request: Request) -> Asked {
        if request.first > self.expected {
            let told = self.refused.replace(self.expected);
            return if told == Some(self.expected) { Asked::Gap } else { Asked::Refused };
        }
        if request.first == self.expected {
            self.expected = request.end;
            self.accepted.push_back(request);
            return Asked::Accepted;
        }
        let waits = |it: &Request| it.first <= request.first && request.first < it.end;
        if self.accepted.iter().any(waits) {
            return Asked::Waits;
        }
        let is_rest = |it: &Request| it.first > request.first && it.end <= request.end;
        self.accepted.retain(|it| !is_rest(it));
        let place = self.accepted.partition_point(|it| it.first < request.first);
        self.accepted.insert(place, request);
        Asked::Accepted
    }

    /// The next packet to send.
    pub(super) fn take(&mut self, limits: Limits) -> Option<Sent<Response>> {
        let request = self.accepted.front_mut()?;
        let Request { first: number, end, last_len } = *request;
        request.first += 1;
        let is_last = request.first == end;
        if is_last {
            self.accepted.pop_front();
        }
        let again = number < self.sent;
        self.sent = self.sent.max(number + 1);
        let len = if is_last { last_len } else { limits.payload };
        Some(Sent { packet: Response { number, len, is_last }, again })
    }

    pub(super) fn has_responses(&self) -> bool {
        !self.accepted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::work::TRANSFER as OP;

    const LIMITS: Limits = Limits { reads: 2, payload: 100 };

    fn begun(lens: &[u64]) -> Requester {
        let mut requester = Requester::default();
        lens.iter().for_each(|&len| requester.post(OP, len));
        requester.begin(LIMITS);
        requester
    }

    fn requests(requester: &mut Requester) -> Vec<Sent<Request>> {
        core::iter::from_fn(|| requester.take()).collect()
    }

    fn numbers(responder: &mut Responder) -> Vec<u64> {
        core::iter::from_fn(|| responder.take(LIMITS)).map(|sent| sent.packet.number).collect()
    }

    #[test]
    fn a_read_has_as_many_packets_as_it_needs_and_no_more_are_under_way_than_may_be() {
        let mut requester = begun(&[250, 1, 100]);
        let sent: Vec<Request> = requests(&mut requester).iter().map(|it| it.packet).collect();
        let wants = |first, end, last_len| Request { first, end, last_len };
        assert_eq!(sent, [wants(0, 3, 50), wants(3, 4, 1)]);
        let mut responder = Responder::default();
        assert_eq!(responder.handle(sent[0]), Asked::Accepted);
        let lens: Vec<u32> =
            core::iter::from_fn(|| responder.take(LIMITS)).map(|sent| sent.packet.len).collect();
        assert_eq!(lens, [100, 100, 50]);
        let received: Vec<Received> = (0..3).map(|number| requester.handle(number)).collect();
        assert_eq!(received, [Received::Taken, Received::Taken, Received::Completed(OP)]);
        assert_eq!(requester.begin(LIMITS), 1);
    }

    #[test]
    fn a_lost_response_packet_is_asked_for_once_with_all_that_follow() {
        let (mut requester, mut responder) = (begun(&[300, 200]), Responder::default());
        for sent in requests(&mut requester) {
            responder.handle(sent.packet);
        }
        assert_eq!(numbers(&mut responder), [0, 1, 2, 3, 4]);
        assert_eq!(requester.handle(0), Received::Taken);
        assert_eq!(requester.handle(2), Received::Gap);
        assert_eq!([requester.handle_gap(), requester.handle_gap()], [2, 0]);
        let again = requests(&mut requester);
        assert!(again.iter().all(|sent| sent.again));
        let asked: Vec<Asked> = again.iter().map(|sent| responder.handle(sent.packet)).collect();
        assert_eq!(asked, [Asked::Accepted, Asked::Accepted]);
        let sent: Vec<_> = core::iter::from_fn(|| responder.take(LIMITS)).collect();
        assert!(sent.iter().all(|sent| sent.again));
        assert_eq!(sent.iter().map(|sent| sent.packet.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn requests_that_come_twice_and_not_all_of_them_leave_no_gap_before_new_ones() {
        let (mut requester, mut responder) = (begun(&[100, 100]), Responder::default());
        let first = requests(&mut requester);
        first.iter().for_each(|sent| assert_eq!(responder.handle(sent.packet), Asked::Accepted));
        assert_eq!(numbers(&mut responder), [0, 1]);
        assert_eq!(requester.go_back(), 2);
        assert_eq!([requester.handle(0), requester.handle(1)], [Received::Completed(OP); 2]);
        // Of those that were sent again, only one arrives.
        assert_eq!(responder.handle(requests(&mut requester)[0].packet), Asked::Accepted);
        requester.post(OP, 100);
        assert_eq!(requester.begin(LIMITS), 1);
        assert_eq!(responder.handle(requests(&mut requester)[0].packet), Asked::Accepted);
        assert_eq!(numbers(&mut responder), [0, 2]);
    }

    #[test]
    fn a_lost_request_is_refused_once_at_the_next_one_and_a_waiting_one_is_not_served_twice() {
        let (mut requester, mut responder) = (begun(&[100, 100]), Responder::default());
        let sent = requests(&mut requester);
        assert_eq!(responder.handle(sent[1].packet), Asked::Refused);
        assert_eq!(responder.handle(sent[1].packet), Asked::Gap);
        assert_eq!(requester.handle_gap(), 2);
        for sent in requests(&mut requester) {
            assert_eq!(responder.handle(sent.packet), Asked::Accepted);
        }
        assert_eq!(requester.go_back(), 2);
        for sent in requests(&mut requester) {
            assert_eq!(responder.handle(sent.packet), Asked::Waits);
        }
        assert_eq!(numbers(&mut responder), [0, 1]);
    }
}
