//! Scenarios of StaR: what must hold between any two hosts that serve it, whatever carries their
//! frames, whichever side has the state, and while 1RMA reads go on between the same hosts.

pub mod roles;

use core::time::Duration;
use std::{os::unix::net::UnixStream, thread};

use rma_lab::Pattern;
use rma_xdp::{
    Host, OpStatus, OpType, Permissions,
    star::{
        Access, CqId, MemoryRegion, PostError, ProtectionDomain, Qp, QpConfig, QpState, RecvWr,
        Remote, Role, SendWr, StarPortalConfig, StarVerbs, Wc, WcStatus, WqeOp,
    },
};

/// How long a completion is waited for that may never come.
const PATIENCE: Duration = Duration::from_secs(60);

/// All that two sides can be together.
const ROLES: [[Role; 2]; 3] =
    [[Role::Stateless, Role::Stateful], [Role::Stateful, Role::Stateless], [Role::Rc, Role::Rc]];

const ALL: Access = Access::from_bits(7);

/// Messages over hundreds of frames.
const LONG: u32 = 1 << 20;

/// One end of a connection. The lower half of its memory region is for what comes, and zero at
/// first; the upper one holds a pattern.
struct End<'h> {
    host: &'h Host,
    verbs: StarVerbs,
    pd: ProtectionDomain,
    mr: MemoryRegion,
    cq: CqId,
    qp: Qp,
    pattern: Pattern,
}

impl<'h> End<'h> {
    fn new(host: &'h Host, role: Role, half: u32, seed: u64) -> Self {
        Self::with(host, StarPortalConfig::default(), (role, half, seed))
    }

    /// Over a portal of its own.
    fn with(
        host: &'h Host,
        config: StarPortalConfig,
        (role, half, seed): (Role, u32, u64),
    ) -> Self {
        let config = config.with(|it| {
            // A busy machine stops an engine for long; and what ends connections is not how soon.
            it.verbs.retries = 40;
            it.verbs.probe_interval = Duration::from_millis(300);
        });
        let mut verbs = host.verbs(config).expect("a portal");
        let pd = host.alloc_pd(&verbs).expect("a PD");
        let mr = host.reg_mr(&pd, 2 * half as usize, ALL).expect("an MR");
        let cq = verbs.create_cq(512);
        let config = QpConfig { role, ..QpConfig::default() };
        let qp = verbs.create_qp(&pd, cq, cq, config).expect("a QP");
        let pattern = Pattern::new(seed);
        let mut bytes = vec![0; half as usize];
        pattern.fill(0, &mut bytes);
        mr.write(half.into(), &bytes).expect("inside the MR");
        Self { host, verbs, pd, mr, cq, qp, pattern }
    }

    const fn half(&self) -> u64 {
        self.mr.len() / 2
    }

    fn post_recv(&mut self, wr_id: u64, offset: u64, length: u32) {
        let wr = RecvWr { wr_id, sge: self.mr.slice(offset, length) };
        self.verbs.post_recv(self.qp, &wr).expect("room for a RECV");
    }

    fn post_send(&mut self, wr: &SendWr<'_>) {
        self.verbs.post_send(self.qp, wr).expect("room for a work request");
    }

    /// The next completion.
    fn next(&mut self) -> Wc {
        let mut wcs = [Wc::EMPTY];
        let count = self.verbs.wait_cq_timeout(self.cq, &mut wcs, PATIENCE);
        assert_eq!(count.expect("something is outstanding"), 1, "it completes in a minute");
        wcs[0]
    }

    fn assert_next(&mut self, wr_id: u64, opcode: WqeOp, status: WcStatus) -> Wc {
        let wc = self.next();
        assert_eq!((wc.wr_id, wc.opcode, wc.status), (wr_id, opcode, status));
        wc
    }

    fn assert_done(&mut self, wr_id: u64, opcode: WqeOp, byte_len: u32) -> Wc {
        let wc = self.assert_next(wr_id, opcode, WcStatus::Success);
        assert_eq!(wc.byte_len, byte_len, "{opcode:?} {wr_id}");
        assert_eq!(Some(wc.qp_num), self.verbs.qpn(self.qp));
        wc
    }

    /// `count` completions that are no successes. Those of a queue come in their order.
    fn assert_flushed(&mut self, count: usize) {
        let mut last = [None; 2];
        for _ in 0..count {
            let wc = self.next();
            assert_ne!(wc.status, WcStatus::Success, "{wc:?}");
            let last = &mut last[usize::from(wc.opcode.is_recv())];
            assert!(*last < Some(wc.wr_id), "{wc:?} after {last:?}");
            *last = Some(wc.wr_id);
        }
    }

    /// The connection is over, and says so.
    fn assert_over(&mut self) {
        assert_eq!(self.verbs.state(self.qp), Some(QpState::Error));
        let sge = self.mr.slice(0, 1);
        let refused = self.verbs.post_send(self.qp, &SendWr::send(0, sge));
        assert_eq!(refused, Err(PostError::QpInError));
    }

    fn bytes(&self, offset: u64, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.mr.read(offset, &mut bytes).expect("inside the MR");
        bytes
    }

    /// `len` bytes at `offset` are those of the peer's pattern at `source`, with zeroes around
    /// them; and they are zeroes from now on.
    fn take(&self, pattern: Pattern, source: u64, offset: u64, len: u32) {
        let found = self.bytes(offset, len);
        assert_eq!(pattern.first_difference(source, &found), None, "{len} bytes");
        assert_eq!([self.bytes(offset - 1, 1), self.bytes(offset + u64::from(len), 1)], [[0]; 2]);
        self.mr.write(offset, &vec![0; len as usize]).expect("inside the MR");
    }
}

fn connect(one: &mut End<'_>, other: &mut End<'_>) {
    let (mut here, mut there) = UnixStream::pair().expect("a pair of sockets");
    let (verbs, qp) = (&mut other.verbs, other.qp);
    thread::scope(|scope| {
        scope.spawn(move || verbs.accept_over(qp, &mut there).expect("a connection"));
        one.verbs.connect_over(one.qp, &mut here).expect("a connection");
    });
}

/// A connection whose ends have this much to give, and room for as much.
fn pair<'h>(hosts: [&'h Host; 2], roles: [Role; 2], half: u32) -> [End<'h>; 2] {
    let [mut one, mut other] = [0, 1].map(|at| End::new(hosts[at], roles[at], half, 5 + at as u64));
    connect(&mut one, &mut other);
    [one, other]
}

/// Everything that must hold, in turn. The first host reads from the second by 1RMA meanwhile. Both
/// may be the same.
pub fn everything_of_star(hosts: [&Host; 2]) {
    while_reads_of_1rma_go_on(hosts, || {
        for roles in ROLES {
            messages_and_memory(hosts, roles);
            many_at_once(hosts, roles);
            a_message_longer_than_its_recv(hosts, roles);
            forbidden_work_is_refused(hosts, roles);
            closing_ends_both_sides(hosts, roles);
            a_portal_dropped_ends_both_sides_and_another_follows(hosts, roles);
        }
        roles::roles_that_are_negotiated(hosts);
        roles::roles_change_under_load(hosts);
    });
}

/// Reads of 1RMA arrive for as long as `work` is under way.
fn while_reads_of_1rma_go_on([client, server]: [&Host; 2], work: impl FnOnce() + Send) {
    let region = server.register(1 << 20, Permissions::READ).expect("a region");
    let pattern = Pattern::new(42);
    pattern.fill_region(&region);
    let address = client.addresses().iter().next().expect("an address");
    let grant = server.grant(&region, address, client.pid(), OpType::Read).expect("registered");
    let sink = client.register(4096, Permissions::NONE).expect("a region");
    let mut portal = client.portal(1).expect("a free slot");
    thread::scope(|scope| {
        let work = scope.spawn(work);
        let mut bytes = [0; 4096];
        for count in 0_u64.. {
            let offset = count * 4099 % 1_000_000;
            portal.read(&grant, offset, &sink, 0, 4096).expect("a free slot");
            assert_eq!(portal.wait().expect("an op is in flight").status, OpStatus::Ok);
            sink.read(0, &mut bytes).expect("inside the sink");
            assert_eq!(pattern.first_difference(offset, &bytes), None, "{offset}");
            if work.is_finished() {
                break;
            }
        }
        work.join().expect("what it has said is above");
    });
    server.deregister(&region).expect("registered");
    client.deregister(&sink).expect("registered");
}

/// SEND, WRITE and READ by either side, of every kind of length, with and without immediate and
/// inline, to memory regions and windows.
fn messages_and_memory(hosts: [&Host; 2], roles: [Role; 2]) {
    let [mut one, mut other] = pair(hosts, roles, LONG + (64 << 10));
    for (end, role) in [(&one, roles[0]), (&other, roles[1])] {
        let expected = [role != Role::Stateless, role == Role::Rc].map(Some);
        assert_eq!([end.verbs.is_stateful(end.qp), end.verbs.is_rc(end.qp)], expected);
    }
    for (index, len) in
        [0, 1, 63, 64, 65, 1399, 1400, 4095, 4096, 4097, 20_000, LONG].into_iter().enumerate()
    {
        for (imm, inline) in [(None, false), (Some(!len), false), (None, true), (Some(len), true)] {
            // An immediate changes nothing about how long messages travel.
            if (inline && len > 64) || (imm.is_some() && len == LONG) {
                continue;
            }
            let place = 64 + index as u64 * 7;
            message(&mut one, &mut other, place, (len, imm, inline));
            message(&mut other, &mut one, place, (len, imm, inline));
            memory(&mut one, &mut other, place, (len, imm, inline));
            memory(&mut other, &mut one, place, (len, imm, inline));
        }
    }
}

/// The length of what must be moved, its immediate, and whether it is inline.
type Kind = (u32, Option<u32>, bool);

fn of_kind(wr: SendWr<'_>, (_, imm, inline): Kind) -> SendWr<'_> {
    let wr = imm.map_or(wr, |imm| wr.with_imm(imm));
    if inline { wr.inline() } else { wr }
}

fn message(one: &mut End<'_>, other: &mut End<'_>, place: u64, kind: Kind) {
    let (len, imm, _) = kind;
    let mr = one.mr.clone();
    let wr = of_kind(SendWr::send(1, mr.slice(one.half() + place, len)), kind);
    // The RECV is there before the message or comes after it, and is as long or longer.
    if place.is_multiple_of(2) {
        other.post_recv(7, place, len);
        one.post_send(&wr);
    } else {
        one.post_send(&wr);
        other.post_recv(7, place, len + 9);
    }
    let wc = other.assert_done(7, WqeOp::Recv, len);
    assert_eq!((wc.imm, wc.is_of_write), (imm, false));
    one.assert_done(1, WqeOp::Send, len);
    other.take(one.pattern, place, place, len);
}

fn memory(one: &mut End<'_>, other: &mut End<'_>, place: u64, kind: Kind) {
    let (len, imm, _) = kind;
    let (mine, mr) = (one.mr.clone(), other.mr.clone());
    let span = 32..mr.len() - 1;
    let window = other.host.bind_mw(&mr, span, ALL.remote()).expect("a window");
    for at in [|mr: &MemoryRegion, _: &_, at| mr.remote(at), |_: &_, mw: &_, at| in_window(mw, at)]
    {
        let wr = SendWr::write(2, mine.slice(one.half() + place, len), at(&mr, &window, place));
        if imm.is_some() {
            other.post_recv(8, 0, 0);
        }
        one.post_send(&of_kind(wr, kind));
        one.assert_done(2, WqeOp::Write, len);
        if imm.is_some() {
            let wc = other.assert_done(8, WqeOp::Recv, len);
            assert_eq!((wc.imm, wc.is_of_write), (imm, true));
        }
        other.take(one.pattern, place, place, len);

        let remote = at(&mr, &window, other.half() + place);
        one.post_send(&SendWr::read(3, mine.slice(place, len), remote));
        one.assert_done(3, WqeOp::Read, len);
        one.take(other.pattern, place, place, len);
    }
    other.host.dealloc_mw(&window).expect("it was bound");
}

/// Names the place at `offset` of the region, through a window that begins at its byte 32.
const fn in_window(window: &rma_xdp::star::MemoryWindow, offset: u64) -> Remote {
    window.remote(offset - 32)
}

/// Work requests of all kinds by both sides at once: each completes in its turn, and its bytes
/// arrive.
fn many_at_once(hosts: [&Host; 2], roles: [Role; 2]) {
    const EACH: u64 = 6000;
    const COUNT: u64 = 60;
    let mut ends = pair(hosts, roles, (2 * COUNT * EACH) as u32);
    let patterns = [0, 1].map(|at: usize| ends[at].pattern);
    let place = |number: u64| number * EACH + 1;
    let len = |number: u64| (number * 331 % (EACH - 2)) as u32;
    for number in 0..COUNT {
        for at in [0, 1] {
            let remote = ends[1 - at].mr.clone();
            let end = &mut ends[at];
            let (mr, half) = (end.mr.clone(), end.half());
            let mine = mr.slice(half + place(number), len(number));
            // Of three, one is a message; what is written comes into the peer's second quarter.
            let wr = match number % 3 {
                0 => {
                    end.post_recv(number, place(number), EACH as u32 - 2);
                    SendWr::send(number, mine)
                }
                1 => SendWr::write(number, mine, remote.remote(place(COUNT + number))),
                _ => {
                    let sink = mr.slice(place(number), len(number));
                    SendWr::read(number, sink, remote.remote(half + place(number)))
                }
            };
            end.post_send(&wr);
        }
    }
    for at in [0, 1] {
        let (mut sent, mut received) = (0, 0);
        for _ in 0..COUNT + COUNT / 3 {
            let wc = ends[at].next();
            let (expected, step) =
                if wc.opcode.is_recv() { (&mut received, 3) } else { (&mut sent, 1) };
            assert_eq!((wc.wr_id, wc.status), (*expected, WcStatus::Success), "{wc:?}");
            assert_eq!(wc.byte_len, len(wc.wr_id), "{wc:?}");
            *expected += step;
        }
    }
    for (at, end) in ends.iter().enumerate() {
        for number in 0..COUNT {
            let to = if number % 3 == 1 { COUNT + number } else { number };
            end.take(patterns[1 - at], place(number), place(to), len(number));
        }
        assert!(end.bytes(0, end.half() as u32).iter().all(|byte| *byte == 0), "nothing else came");
    }
}

/// Ends the connection, and the work request of each side says why.
fn a_message_longer_than_its_recv(hosts: [&Host; 2], roles: [Role; 2]) {
    for near in [0, 1] {
        for len in [11, 9000] {
            let mut ends = pair(hosts, roles, 10_000);
            let [one, other] = both(&mut ends, near);
            let mr = one.mr.clone();
            other.post_recv(1, 64, len);
            other.post_recv(2, 64, len - 1);
            other.post_recv(3, 64, len);
            one.post_send(&SendWr::send(1, mr.slice(one.half(), len)));
            one.assert_done(1, WqeOp::Send, len);
            for wr_id in [2, 3] {
                let sge = mr.slice(one.half(), len);
                one.post_send(&SendWr::send(wr_id, sge));
            }
            one.assert_next(2, WqeOp::Send, WcStatus::RemInvReqErr);
            one.assert_next(3, WqeOp::Send, WcStatus::WrFlushErr);
            one.assert_over();
            other.assert_done(1, WqeOp::Recv, len);
            other.assert_next(2, WqeOp::Recv, WcStatus::LocLenErr);
            other.assert_next(3, WqeOp::Recv, WcStatus::WrFlushErr);
            other.assert_over();
        }
    }
}

/// That end, and the other.
fn both<T>(ends: &mut [T; 2], near: usize) -> [&mut T; 2] {
    let [first, second] = ends;
    if near == 0 { [first, second] } else { [second, first] }
}

/// Something of a peer that may not be done: what it is, whether it is written, and where.
type Forbidden = (&'static str, bool, fn(&End<'_>) -> Remote);

/// Wrong rights, bounds and names, of regions and windows.
const FORBIDDEN: [Forbidden; 10] = [
    ("a read of what may be written only", false, |end| {
        region(end, Access::REMOTE_WRITE).remote(0)
    }),
    ("a write to what may be read only", true, |end| region(end, Access::REMOTE_READ).remote(0)),
    ("a read beyond the end", false, |end| end.mr.remote(end.mr.len() - 63)),
    ("a write far beyond the end", true, |end| end.mr.remote(u64::MAX - 64)),
    ("a write beyond a window", true, |end| window(end, ALL.remote()).remote(37)),
    ("a write through a window that is for reads", true, |end| {
        window(end, Access::REMOTE_READ).remote(0)
    }),
    ("a read through a window that was taken back", false, |end| {
        let window = window(end, Access::REMOTE_READ);
        end.host.dealloc_mw(&window).expect("it was bound");
        window.remote(0)
    }),
    ("a write to a region that was taken back", true, |end| {
        let region = region(end, ALL);
        end.host.dereg_mr(&region).expect("it was registered");
        region.remote(0)
    }),
    ("a read from another protection domain", false, |end| {
        let pd = end.host.alloc_pd(&end.verbs).expect("a PD");
        end.host.reg_mr(&pd, 4096, ALL).expect("an MR").remote(0)
    }),
    ("a write to what never was", true, |_| Remote::of(0xffff_fffe, 0)),
];

fn region(end: &End<'_>, access: Access) -> MemoryRegion {
    end.host.reg_mr(&end.pd, 4096, access).expect("an MR")
}

fn window(end: &End<'_>, access: Access) -> rma_xdp::star::MemoryWindow {
    end.host.bind_mw(&end.mr, 0..100, access).expect("a window")
}

/// Whoever does what it may not is told so, changes nothing, and has no connection any longer.
fn forbidden_work_is_refused(hosts: [&Host; 2], roles: [Role; 2]) {
    for near in [0, 1] {
        for (what, is_write, remote) in FORBIDDEN {
            let mut ends = pair(hosts, roles, 4096);
            let [one, other] = both(&mut ends, near);
            let (mr, remote) = (one.mr.clone(), remote(other));
            one.post_recv(1, 0, 64);
            other.post_recv(1, 0, 64);
            let wr = if is_write {
                SendWr::write(2, mr.slice(4096, 64), remote)
            } else {
                SendWr::read(2, mr.slice(0, 64), remote)
            };
            one.post_send(&wr);
            one.post_send(&SendWr::send(3, mr.slice(4096, 64)));
            // Its two queues fail together, in no order.
            let mut wcs = [(); 3].map(|()| one.next());
            wcs.sort_by_key(|wc| wc.wr_id);
            let expected = [WcStatus::WrFlushErr, WcStatus::RemAccessErr, WcStatus::WrFlushErr];
            assert_eq!(wcs.map(|wc| wc.status), expected, "{what}");
            other.assert_flushed(1);
            for end in [one, other] {
                end.assert_over();
                assert!(end.bytes(0, 4096).iter().all(|byte| *byte == 0), "{what}");
                let sent = end.bytes(4096, 4096);
                assert_eq!(end.pattern.first_difference(0, &sent), None, "{what}");
            }
        }
    }
}

/// Checks that work posted at either side is flushed, and that nothing can be posted afterwards.
fn closing_ends_both_sides(hosts: [&Host; 2], roles: [Role; 2]) {
    for near in [0, 1] {
        let mut ends = pair(hosts, roles, 4096);
        let [one, other] = both(&mut ends, near);
        let mr = one.mr.clone();
        for wr_id in 1..4 {
            one.post_recv(wr_id, 0, 64);
            other.post_recv(wr_id, 0, 64);
        }
        one.post_send(&SendWr::send(1, mr.slice(4096, 64)));
        one.assert_done(1, WqeOp::Send, 64);
        other.assert_done(1, WqeOp::Recv, 64);
        one.verbs.close(one.qp);
        for wr_id in 1..4 {
            one.assert_next(wr_id, WqeOp::Recv, WcStatus::WrFlushErr);
        }
        let refused = one.verbs.post_send(one.qp, &SendWr::send(0, mr.slice(0, 1)));
        assert!(refused.is_err(), "{refused:?}");
        other.assert_flushed(2);
        other.assert_over();
    }
}

/// A portal goes while a long message is under way; its peer hears of it, and the next portal of
/// its host connects to the same peer.
fn a_portal_dropped_ends_both_sides_and_another_follows(hosts: [&Host; 2], roles: [Role; 2]) {
    for near in [0, 1] {
        let mut other = End::new(hosts[1 - near], roles[1 - near], LONG, 6);
        for _ in 0..2 {
            let mut one = End::new(hosts[near], roles[near], LONG, 5);
            connect(&mut one, &mut other);
            let mr = one.mr.clone();
            other.post_recv(1, 64, 100);
            one.post_send(&SendWr::send(1, mr.slice(one.half(), 100)));
            other.assert_done(1, WqeOp::Recv, 100);
            other.take(one.pattern, 0, 64, 100);
            one.post_recv(2, 64, 64);
            one.post_send(&SendWr::write(2, mr.slice(one.half(), LONG), other.mr.remote(0)));
            other.post_recv(2, 64, 64);
            other.post_recv(3, 64, 64);
            drop(one);
            other.assert_flushed(2);
            other.assert_over();
            other.verbs.close(other.qp);
            let half = other.half() as usize;
            other.mr.write(0, &vec![0; half]).expect("inside the MR");
            let config = QpConfig { role: roles[1 - near], ..QpConfig::default() };
            other.qp = other.verbs.create_qp(&other.pd, other.cq, other.cq, config).expect("a QP");
        }
    }
}
