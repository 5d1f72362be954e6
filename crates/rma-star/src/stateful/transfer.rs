//! Begins work requests in the order of their queues, and lands what is pulled from Z (§III-C3).
//!
//! A SEND begins when the other side has a RECV for it (ours: both queues are known here, so
//! nothing is sent in vain), and no WRITE or READ is before it. A WRITE or READ begins when the
//! data of all before it has been answered.
//!
//! What lands here lands within W of when Z was asked, by this host's clock: Z reports that a work
//! request has failed only later. A message that came with its work request is as good if that came
//! within W; otherwise Z is asked first whether the connection is there (section 3.4 of
//! `docs/STAR-WIRE.md`).

use rma_core::time::{Clock, Instant};

use super::{
    SIDES, Stateful,
    connection::Phase,
    under_way::What,
    work::{Place, Way},
};
use crate::{
    counters::StarEvent,
    keys::FrameKey,
    limits::CHUNK_LEN_MAX,
    names::Side,
    tables::Tables,
    verbs::{WcStatus, WqeOp},
    wire::data::{GDA_HEADER_LEN, GUIDE_HEADER_LEN},
};
use rma_core::limits::{GRANULE, TAG_LEN};

/// Octets of the next chunk of a message of which `left` octets are left, in frames of so many.
pub(super) fn chunk_len(way: Way, left: u32, frame_len_max: usize) -> u32 {
    let header = match way {
        Way::Push => GUIDE_HEADER_LEN,
        Way::Pull => GDA_HEADER_LEN,
    };
    let most = frame_len_max.saturating_sub(header + TAG_LEN).min(CHUNK_LEN_MAX as usize) as u32;
    if left <= most { left } else { most / GRANULE * GRANULE }
}

impl Stateful {
    /// Begins whatever may begin.
    pub(super) fn advance(&mut self, host: &mut Tables<'_>, now: Instant, at: u16) {
        for side in SIDES {
            while self.begin_next(host, now, at, side) {}
        }
        self.relist(at);
    }

    /// Begins the next work request of a side. `false` if there is none that may begin.
    fn begin_next(&mut self, host: &mut Tables<'_>, now: Instant, at: u16, side: Side) -> bool {
        let connection = self.connections.at(at);
        let queues = &connection.queues[side as usize];
        let may_begin = connection.phase == Phase::Open
            && !connection.is_halted
            && connection.roles.may_begin();
        let Some(row) = queues.sends.front().filter(|_| may_begin) else { return false };
        let work = &self.works[row];
        let before = queues.moving.front().or(queues.answering.front());
        let is_in_order =
            before.is_none_or(|before| !work.is_exclusive() && !self.works[before].is_exclusive());
        if !is_in_order {
            return false;
        }
        let other = SIDES[1 - side as usize];
        // The peer's RECVs are its own to know, if it is stateful as well.
        let (is_rc, needs_recv) = (connection.rc.is_some(), work.needs_recv());
        let recv = if needs_recv && !is_rc {
            let recv = connection.queues[other as usize].recvs.front();
            self.set_blocked(at, side, recv.is_none().then_some(now));
            if recv.is_none() {
                return false;
            }
            recv
        } else {
            None
        };
        // With it the connection ends: those before it must be over, or they would fail as well.
        if before.is_some() && self.is_too_long(row, recv) {
            return false;
        }
        let Some(key) = self.key_of(host, now, at, row) else { return false };
        let connection = self.connections.at_mut(at);
        connection.queues[side as usize].sends.remove(&mut self.work_links, row);
        if let Some(recv) = recv {
            connection.queues[other as usize].recvs.remove(&mut self.work_links, recv);
        }
        self.works[row].partner = recv;
        if needs_recv {
            self.works[row].recv = self.next_recv(at);
        }
        if !self.may_go(host, row) {
            return true;
        }
        let work = &self.works[row];
        let recv = recv.map(|recv| &self.works[recv]);
        let mut transfer = work.transfer_with(recv, key);
        if is_rc {
            transfer = transfer.of_rc(work.recv);
        }
        let is_at_hand = work.is_at_hand();
        if is_at_hand {
            transfer.begun = transfer.len;
        }
        let has_left = transfer.has_left();
        self.works[row].transfer = Some(transfer);
        let queues = &mut self.connections.at_mut(at).queues[side as usize];
        let list = if has_left { &mut queues.moving } else { &mut queues.answering };
        list.push_back(&mut self.work_links, row);
        if is_at_hand {
            self.land_at_hand(host, now, row, None);
        } else if !has_left {
            self.finish(host, row, false);
        }
        true
    }

    /// The key of the registry for an op of this host, or that of its half in RC; of no meaning for
    /// others. `None` if it is not known yet, or it is known that there is none.
    fn key_of(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        at: u16,
        row: u16,
    ) -> Option<FrameKey> {
        let work = &self.works[row];
        let is_one_sided = matches!(work.op, WqeOp::Read | WqeOp::Write);
        if self.is_rc(at) {
            return Some(self.connections.at(at).key);
        }
        let needs_rule = work.owner == Side::Stateful && is_one_sided && work.len > 0;
        if !needs_rule || !self.has_whitelist {
            return Some(FrameKey::NONE);
        }
        let connection = self.connections.at_mut(at);
        let Place { mr, offset } = work.there;
        match self.registry.key(&connection.rules, work.op, mr, offset, work.len) {
            Some(Ok(key)) => Some(key),
            Some(Err(status)) => {
                self.works[row].status = status;
                self.fail(host, now, at, status);
                None
            }
            None => {
                connection.wanted = Some(mr);
                None
            }
        }
    }

    /// Whether a work request that is in no list may move its data. If not, its end is on its way
    /// to Z.
    fn may_go(&mut self, host: &Tables<'_>, row: u16) -> bool {
        let work = &self.works[row];
        let (at, is_own, len) = (work.connection, work.owner == Side::Stateful, work.len);
        if let Some(recv) = work.partner.filter(|&recv| self.is_too_long(row, Some(recv))) {
            self.works[row].status = WcStatus::RemInvReqErr;
            self.works[recv].status = WcStatus::LocLenErr;
            let told = if is_own { self.turn_over(row, recv) } else { row };
            self.tell_failure(at, told);
            return false;
        }
        let access = work.transfer_with(None, FrameKey::NONE).access;
        let pd = self.connections.at(at).local_pd;
        let is_remote = !is_own && work.op != WqeOp::Send && len > 0;
        let Place { mr, offset } = work.here;
        if is_remote && host.mrs.span(pd, mr, access, offset, len.into()).is_err() {
            host.counters.count(StarEvent::Denied);
            self.works[row].status = WcStatus::RemAccessErr;
            self.tell_failure(at, row);
            return false;
        }
        true
    }

    /// Whether a message is longer than the RECV that it would go to.
    fn is_too_long(&self, row: u16, recv: Option<u16>) -> bool {
        let work = &self.works[row];
        work.op == WqeOp::Send && recv.is_some_and(|recv| work.len > self.works[recv].len)
    }

    /// Z must be told of a work request of its that has failed, and then the connection ends.
    pub(super) fn tell_failure(&mut self, at: u16, row: u16) {
        let connection = self.connections.at_mut(at);
        connection.is_halted = true;
        connection.done.push_back(&mut self.work_links, row);
    }

    /// Makes the RECV that a work request of this host has as its partner the one whose partner
    /// that is: it is the RECV that Z is told of.
    pub(super) fn turn_over(&mut self, row: u16, recv: u16) -> u16 {
        self.works[row].partner = None;
        self.works[recv].partner = Some(row);
        recv
    }

    /// Lands a message that came with its work request, if it is certain that Z has not given that
    /// up: it is younger than W, or Z has said after it came that the connection is there, and was
    /// asked at `asked_at`, less than W ago. Otherwise Z is asked.
    pub(super) fn land_at_hand(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        row: u16,
        asked_at: Option<Instant>,
    ) {
        let work = &self.works[row];
        let (at, (sealed, came_at)) = (work.connection, work.told);
        let connection = self.connections.at(at);
        let valid = connection.valid_micros;
        let is_young = match asked_at {
            Some(asked_at) => {
                asked_at >= came_at && now.nanos_since(asked_at) < valid.saturating_mul(1_000)
            }
            None => {
                let latest = connection.clock.upper(now);
                latest.is_some_and(|latest| latest.0 < sealed.0.saturating_add(valid))
            }
        };
        if !is_young {
            self.connections.at_mut(at).probe_is_due = true;
            return;
        }
        if let (Some(inline), Some(transfer)) = (work.inline, work.transfer) {
            let octets = &inline.0[..work.len as usize];
            let (pd, Place { mr, offset }) = (connection.local_pd, transfer.here);
            let span = host.mrs.span(pd, mr, transfer.access, offset, octets.len() as u64);
            let landed = span.is_ok_and(|span| span.memory.copy_in(span.offset, octets).is_ok());
            if !landed {
                return self.fail_locally(host, now, row);
            }
        }
        self.finish(host, row, false);
    }

    /// A chunk that was asked for is here. `false` if it may not land: it is too late,
    /// or its memory is gone, with which the connection ends.
    pub(super) fn land_chunk(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        clock: &impl Clock,
        frame: u16,
        octets: &[u8],
    ) -> bool {
        let sent = self.frames.at(frame);
        let (&What::Chunk { work: row, offset, .. }, Some(copy)) = (&sent.what, sent.copy) else {
            return false;
        };
        let work = &self.works[row];
        let connection = self.connections.at(work.connection);
        let valid_nanos = connection.valid_micros.saturating_mul(1_000);
        let is_late = || clock.now().nanos_since(copy.sent_at) >= valid_nanos;
        let Some(transfer) = work.transfer.filter(|_| !is_late()) else { return false };
        let (offset, len) = (transfer.here.offset + u64::from(offset), octets.len() as u64);
        let (pd, mr) = (connection.local_pd, transfer.here.mr);
        let span = host.mrs.span(pd, mr, transfer.access, offset, len);
        if !span.is_ok_and(|span| span.memory.copy_in(span.offset, octets).is_ok()) {
            self.fail_locally(host, now, row);
            return false;
        }
        if is_late() {
            host.counters.count(StarEvent::LateEffect);
        }
        true
    }

    /// The memory of this host that a work request is about is no longer there.
    pub(super) fn fail_locally(&mut self, host: &mut Tables<'_>, now: Instant, row: u16) {
        let work = &self.works[row];
        let at = work.connection;
        // The owner of the memory.
        let own = if work.owner == Side::Stateful { Some(row) } else { work.partner };
        if let Some(own) = own.filter(|&own| self.works[own].owner == Side::Stateful) {
            self.works[own].status = WcStatus::LocProtErr;
        }
        self.fail(host, now, at, WcStatus::LocProtErr);
    }
}
