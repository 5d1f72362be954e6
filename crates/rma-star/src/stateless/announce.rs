//! Makes WQEPs of what applications post (§III-C2), and tells initial state (§III-C1).
//!
//! The ring of posts is the queue: a post leaves it when the frame that tells of it is written.
//! From then on its guard word says that it is open, and nothing else of it is kept here; the
//! library posts it again if nobody has taken it.
//!
//! A work request whose local end is not its application's to use is reported at once, and told to
//! nobody.

use arrayvec::ArrayVec;
use rma_core::{
    addr::HostAddr,
    backend::{Transmit, TxFrame},
    limits::{TAG_LEN, UNANNOUNCED_LEN_MAX},
    op::ClassOfService,
    port::SourcePort,
    time::Instant,
};
use rma_crypto::{KEY_LEN, Key};
use rma_shm::Line;

use super::guard::binding_of;
use crate::{
    config::Framing,
    counters::StarEvent,
    keys::{Binding, FrameKey, KeyMessage, OpenSpan},
    limits::{INLINE_MAX, MESSAGE_LEN_MAX},
    mr_table::Access,
    names::{Era, Generation, MrId, Sequence, Side, Slot},
    portal::{Guard, GuardState, Post, Posted, QpState},
    sealer::Sealer,
    tables::{Tables, z_time},
    verbs::{WcStatus, WqeOp},
    wire::{
        Header, Initial, KeyPhase, State, StateKind, Wqe, WqeKind, Wqep, entries::WQE_LEN,
        state::STATE_HEADER_LEN, switch, work::WORK_HEADER_LEN,
    },
};

/// The most work requests of one WQEP that this host writes: with their inline data they fit the
/// shortest path there may be.
const WQES_MAX: usize = 8;

/// The number of a STATE of this side that says nothing of a question.
pub(super) const INITIAL_NUMBER: u8 = 1;

/// A work request that a WQEP is to tell of.
type Told = (Posted, Option<Line>);

/// Writes the next WQEP or initial state, to be sealed. Returns whether there was one. Portals take
/// turns, a frame each. What is posted for a QP of which `is_other` says so, by portal and number,
/// is not of stateless processing, and stays.
pub(super) fn write_next(
    host: &mut Tables<'_>,
    sealer: &mut Sealer,
    now: Instant,
    out: &mut TxFrame<'_>,
    is_other: impl Fn(u16, u32) -> bool,
) -> bool {
    while host.portals.has_waiting() {
        if !sealer.can_seal() {
            host.counters.count(StarEvent::SealRefused);
            return false;
        }
        let Some(portal) = host.portals.next_waiting() else { return false };
        while let Some((post, inline)) = next_post(host, portal) {
            if post.qp_of_either_side().is_some_and(|qp| is_other(portal, qp)) {
                break;
            }
            let mut writer = Writer { host: &mut *host, sealer: &mut *sealer, now, portal };
            let is_written = match post {
                Post::Wqe(posted) => writer.write_wqep(posted, inline, out),
                Post::Introduce { qp } => writer.write_initial(qp, out),
                Post::Switch { qp, .. } => writer.write_wish(qp, out),
                Post::Answer { qp, number, agrees } => writer.write_switch(qp, number, agrees, out),
                // Those are not told to anybody: the service takes them.
                Post::Open { .. } | Post::OpenRc { .. } => break,
                Post::Close { .. } | Post::TakeOver { .. } => break,
            };
            if is_written {
                if next_post(host, portal).is_some() {
                    host.portals.wait(portal);
                }
                return true;
            }
            came_to_nothing(host, portal);
        }
    }
    false
}

/// The next post of a portal that a frame is to tell of.
fn next_post(host: &mut Tables<'_>, portal: u16) -> Option<(Post, Option<Line>)> {
    host.portals.get_mut(portal.into())?.next_post()
}

fn done(host: &mut Tables<'_>, portal: u16) {
    if let Some(port) = host.portals.get_mut(portal.into()) {
        port.done();
    }
}

/// A post was done with, and no frame tells of it.
fn came_to_nothing(host: &mut Tables<'_>, portal: u16) {
    if let Some(port) = host.portals.get_mut(portal.into()) {
        port.came_to_nothing();
    }
}

/// Writes one frame.
struct Writer<'a, 'h> {
    host: &'a mut Tables<'h>,
    sealer: &'a mut Sealer,
    now: Instant,
    portal: u16,
}

impl Writer<'_, '_> {
    //= star#III-C2-wqep
    /// Tells of a work request, and of those behind it of the same connection. `false` if it came
    /// to nothing; then it is done with.
    fn write_wqep(&mut self, first: Posted, inline: Option<Line>, out: &mut TxFrame<'_>) -> bool {
        let mut told: ArrayVec<Told, WQES_MAX> = ArrayVec::new();
        let most = match self.host.config.settings().framing {
            Framing::Faithful => 1,
            Framing::Fused => WQES_MAX,
        };
        let mut next = Some((Post::Wqe(first), inline));
        while let Some((Post::Wqe(posted), inline)) = next
            && posted.qp == first.qp
            && told.len() < most
        {
            done(self.host, self.portal);
            if self.admit(&posted) {
                told.push((posted, inline));
            } else {
                came_to_nothing(self.host, self.portal);
            }
            next = if told.len() < most { next_post(self.host, self.portal) } else { None };
        }
        let binding = binding_of(self.host, self.portal, first.qp).map(|(binding, _)| binding);
        let Some(binding) = binding.filter(|_| !told.is_empty()) else { return false };
        self.write_told(&binding, &told, out)
    }

    /// Opens the slot of a work request, if it may be told. Otherwise its application is told why
    /// not, or, if it was posted again and is over, nothing.
    fn admit(&mut self, posted: &Posted) -> bool {
        let portal = u32::from(self.portal);
        let Some(port) = self.host.portals.get(portal) else { return false };
        let (word, guard) = (port.memory().qp_word(posted.qp), port.memory().guard(posted.slot));
        let Some(guard) = guard else {
            self.host.counters.count(StarEvent::PostRefused);
            return false;
        };
        let is_open = guard.state == GuardState::Open;
        let is_same = guard.is_of(posted.generation, posted.qp, word.nonce);
        if posted.again {
            return is_open && is_same && word.state == QpState::Open && is_sound(posted);
        }
        if posted.is_moved && is_same && guard.state != GuardState::Free {
            // Of an era before, and this one's if it was posted in it already.
            return is_open && word.state == QpState::Open && is_sound(posted);
        }
        let status = if word.state != QpState::Open {
            WcStatus::WrFlushErr
        } else if is_open && is_same {
            // It is under way: there will be a report of it.
            self.host.counters.count(StarEvent::PostRefused);
            return false;
        } else {
            self.status_of(posted)
        };
        if status == WcStatus::Success {
            let Posted { slot, generation, qp, .. } = *posted;
            if let Some(port) = self.host.portals.get_mut(portal) {
                port.set_guard(slot, Guard::new(generation, qp, word.nonce, GuardState::Open));
            }
            return true;
        }
        if !self.host.portals.report(portal, &posted.refused(status)) {
            self.host.counters.count(StarEvent::ReportLost);
        }
        false
    }

    /// Whether a work request makes sense, and its local end is its application's to use.
    fn status_of(&self, posted: &Posted) -> WcStatus {
        if !is_sound(posted) {
            return WcStatus::LocQpOpErr;
        }
        if posted.inline_len > 0 || posted.length == 0 {
            return WcStatus::Success;
        }
        let access = match posted.op {
            WqeOp::Send | WqeOp::Write => Access::LOCAL_READ,
            WqeOp::Recv | WqeOp::Read => Access::LOCAL_WRITE,
        };
        let binding = binding_of(self.host, self.portal, posted.qp).map(|(binding, _)| binding);
        let span = binding.and_then(|binding| {
            let (pd, mr, len) = (binding.connection.pd, MrId(posted.mr), posted.length.into());
            self.host.mrs.span(pd, mr, access, posted.offset, len).ok()
        });
        if span.is_some() { WcStatus::Success } else { WcStatus::LocProtErr }
    }

    /// Writes a WQEP. `false` if it has no room: then its work requests are told of when they are
    /// posted again.
    fn write_told(&mut self, binding: &Binding, told: &[Told], out: &mut TxFrame<'_>) -> bool {
        let inline_len: usize = told.iter().map(|(posted, _)| usize::from(posted.inline_len)).sum();
        let len = WORK_HEADER_LEN + told.len() * WQE_LEN + inline_len + TAG_LEN;
        let Some(pd) = self.host.pd_of(&binding.connection) else { return false };
        if len > out.bytes.len() {
            return false;
        }
        // K_c, and the K_w of each.
        let mut messages: ArrayVec<KeyMessage, { WQES_MAX + 1 }> = ArrayVec::new();
        messages.push(KeyMessage::of_connection(binding));
        messages.extend(told.iter().map(|(posted, _)| {
            let span = OpenSpan {
                op: posted.op,
                slot: Slot(posted.slot),
                generation: Generation(posted.generation),
                mr: MrId(posted.mr),
                mr_offset: posted.offset,
                len: posted.length,
            };
            KeyMessage::of_wqe(binding, &span)
        }));
        let mut keys = [const { Key::from_bytes([0; KEY_LEN]) }; WQES_MAX + 1];
        let keys = &mut keys[..messages.len()];
        {
            let jobs: ArrayVec<_, { WQES_MAX + 1 }> =
                messages.iter().map(|message| message.job(&pd.key)).collect();
            self.host.aead.derive(&jobs, keys);
        }
        let mut at = WORK_HEADER_LEN + told.len() * WQE_LEN;
        let [connection_key, wqe_keys @ ..] = &*keys else { return false };
        for (index, ((posted, inline), key)) in told.iter().zip(wqe_keys).enumerate() {
            let wqe = wqe_of(posted, FrameKey::from_bytes(*key.expose()));
            let entry = &mut out.bytes[WORK_HEADER_LEN + index * WQE_LEN..];
            wqe.emit(entry.first_chunk_mut().expect("the length was looked at"));
            let octets = inline.unwrap_or_default().0.map(u64::to_le_bytes);
            let data = &octets.as_flattened()[..posted.inline_len.into()];
            out.bytes[at..at + data.len()].copy_from_slice(data);
            at += data.len();
        }
        let header = self.header(binding);
        let (count, inline_len) = (told.len() as u8, inline_len as u16);
        let mut octets = [0; WORK_HEADER_LEN];
        Wqep { header, count, inline_len }.emit(&mut octets);
        let key = FrameKey::from_bytes(*connection_key.expose());
        self.push(binding, &key, &header, &octets, len, out)
    }

    //= star#III-C1-state
    /// Tells the stateful side what it must know to begin.
    fn write_initial(&mut self, qp: u32, out: &mut TxFrame<'_>) -> bool {
        done(self.host, self.portal);
        let Some((binding, key)) = open_connection(self.host, self.portal, qp) else {
            return false;
        };
        let initial = initial_of(self.host, binding.z);
        self.write_state(&binding, &key, StateKind::Initial, &initial.to_octets(), out)
    }

    fn write_state(
        &mut self,
        binding: &Binding,
        key: &FrameKey,
        kind: StateKind,
        payload: &[u8],
        out: &mut TxFrame<'_>,
    ) -> bool {
        let len = STATE_HEADER_LEN + payload.len() + TAG_LEN;
        if len > out.bytes.len() {
            return false;
        }
        let (header, number) = (self.header(binding), INITIAL_NUMBER);
        let octets = State::write_whole(header, Side::Stateless, kind, number, payload, out.bytes);
        self.push(binding, key, &header, &octets, len, out)
    }

    /// Says to the stateful side that roles may change, or that they do not.
    fn write_switch(&mut self, qp: u32, number: Era, agrees: bool, out: &mut TxFrame<'_>) -> bool {
        done(self.host, self.portal);
        let kind = if agrees { StateKind::Switch } else { StateKind::Abort };
        let Some((binding, key)) = open_connection(self.host, self.portal, qp) else {
            return false;
        };
        self.write_state(&binding, &key, kind, &switch::named(number), out)
    }

    /// Asks the stateful side to change roles: it counts them.
    fn write_wish(&mut self, qp: u32, out: &mut TxFrame<'_>) -> bool {
        done(self.host, self.portal);
        let len = WORK_HEADER_LEN + WQE_LEN + TAG_LEN;
        let Some((binding, key)) = open_connection(self.host, self.portal, qp) else {
            return false;
        };
        if len > out.bytes.len() {
            return false;
        }
        let header = self.header(&binding);
        let mut octets = [0; WORK_HEADER_LEN];
        Wqep { header, count: 1, inline_len: 0 }.emit(&mut octets);
        let entry = out.bytes[WORK_HEADER_LEN..].first_chunk_mut();
        Wqe::SWITCH.emit(entry.expect("the length was looked at"));
        self.push(&binding, &key, &header, &octets, len, out)
    }

    fn header(&mut self, binding: &Binding) -> Header {
        self.sealer.header(binding.connection, KeyPhase::Even, z_time(self.now))
    }

    fn push<const LEN: usize>(
        &mut self,
        binding: &Binding,
        key: &FrameKey,
        header: &Header,
        octets: &[u8; LEN],
        len: usize,
        out: &mut TxFrame<'_>,
    ) -> bool {
        out.bytes[..LEN].copy_from_slice(octets);
        self.sealer.push(key, header.iv(Side::Stateless), octets, z_time(self.now));
        let port = self.host.config.place().stateful_port;
        let (ends, class) = ([binding.z, binding.f], ClassOfService::Latency);
        out.transmit = Some(Transmit {
            source_port: SourcePort::of_turn(self.now),
            packet_len_max: UNANNOUNCED_LEN_MAX.max(len as u16),
            tenant: self.host.tenant_of(binding.connection.qpn_z.portal()),
            ..Transmit::new(ends, port, class, len)
        });
        true
    }
}

/// Collects the facts that the stateful side must know to begin, which speaks to `z`, an address of
/// this host.
pub(super) fn initial_of(host: &Tables<'_>, z: HostAddr) -> Initial {
    let receive = &host.config.place().receive_len_max;
    let longest = if z.is_ipv4() { receive.ipv4 } else { receive.ipv6 };
    Initial {
        valid_micros: host.config.valid_micros() as u32,
        packet_len_max: u16::try_from(longest).unwrap_or(u16::MAX),
    }
}

/// The name and K_c of the connection of a QP, if it is open.
pub(super) fn open_connection(
    host: &Tables<'_>,
    portal: u16,
    qp: u32,
) -> Option<(Binding, FrameKey)> {
    let port = host.portals.get(portal.into())?;
    if port.memory().qp_word(qp).state != QpState::Open {
        return None;
    }
    let (binding, pd_key) = binding_of(host, portal, qp)?;
    let key = pd_key.derive(host.aead, &KeyMessage::of_connection(&binding));
    Some((binding, key))
}

/// Whether the fields of a work request go together, so that it can be told at all. To be asked
/// also of one that is posted again: its application may say something else than the first time.
fn is_sound(posted: &Posted) -> bool {
    posted.length <= MESSAGE_LEN_MAX
        && posted.offset.checked_add(posted.length.into()).is_some()
        && posted.remote_offset.checked_add(posted.length.into()).is_some()
        && (posted.inline_len == 0
            || (u32::from(posted.inline_len) == posted.length
                && usize::from(posted.inline_len) <= INLINE_MAX
                && matches!(posted.op, WqeOp::Send | WqeOp::Write)))
}

/// A work request as it travels.
fn wqe_of(posted: &Posted, key: FrameKey) -> Wqe {
    let is_remote = matches!(posted.op, WqeOp::Write | WqeOp::Read);
    Wqe {
        slot: Slot(posted.slot),
        generation: Generation(posted.generation),
        sequence: Sequence(posted.sequence),
        open_before: posted.open_before,
        kind: WqeKind::Transfer(posted.op),
        mr: MrId(posted.mr),
        mr_offset: posted.offset,
        len: posted.length,
        remote_mr: MrId(if is_remote { posted.remote_mr } else { 0 }),
        remote_offset: if is_remote { posted.remote_offset } else { 0 },
        immediate: posted.immediate.filter(|_| matches!(posted.op, WqeOp::Send | WqeOp::Write)),
        is_inline: posted.inline_len > 0,
        key,
    }
}
