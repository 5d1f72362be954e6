//! Takes work requests: those that applications of this host post, and those of Z that WQEPs tell
//! of (§III-C2).
//!
//! Those of Z come in the order of their queues, and each is taken once: one that comes again is
//! acknowledged again (ours: the paper numbers no WQEs). What a peer, or an application, may fill
//! of the table is limited ([`shares`](super::shares)), so it keeps nobody else from posting.

use rma_core::{seal::Authentic, time::Instant};
use rma_shm::Line;

use super::{
    Stateful,
    connection::Phase,
    receive::Seen,
    report,
    work::{Inline, Place, Work},
};
use crate::{
    clock::ZTime,
    config::Framing,
    counters::{StarDrop, StarEvent},
    keys::FrameKey,
    limits::{INLINE_MAX, MESSAGE_LEN_MAX},
    mr_table::Access,
    names::{MrId, Sequence, Side},
    portal::{Posted, StarPort},
    tables::Tables,
    verbs::{WcStatus, WqeOp},
    wire::{Wqe, WqeKind, Wqep},
};

impl Stateful {
    /// Takes what an application has posted to a connection of this side; `false` if it is none.
    /// What makes no sense is reported at once, and ends the connection: what is posted behind it
    /// must not be done without it.
    pub(crate) fn post(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        portal: u16,
        posted: &Posted,
        inline: Option<&Line>,
    ) -> bool {
        let Some(at) = self.find(portal, posted.qp) else { return false };
        if posted.again {
            // Nothing is lost between an application and its own engine.
            return true;
        }
        let entered = match self.connections.at(at).phase {
            Phase::Open => self.enter(host, now, at, posted, inline),
            _ => Err(WcStatus::WrFlushErr),
        };
        if let Err(status) = entered {
            host.counters.count(StarEvent::PostRefused);
            report(host, portal, &posted.refused(status));
            self.fail(host, now, at, status);
        }
        true
    }

    fn enter(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        at: u16,
        posted: &Posted,
        inline: Option<&Line>,
    ) -> Result<(), WcStatus> {
        let Posted { op, length: len, sequence: posted_sequence, .. } = *posted;
        let gives = matches!(op, WqeOp::Send | WqeOp::Write);
        let inline = if posted.inline_len > 0 { inline } else { None };
        let is_sound = len <= MESSAGE_LEN_MAX
            && posted.remote_offset.checked_add(len.into()).is_some()
            && (posted.inline_len == 0
                || (gives
                    && inline.is_some()
                    && u32::from(posted.inline_len) == len
                    && usize::from(posted.inline_len) <= INLINE_MAX))
            && (gives || posted.immediate.is_none());
        if !is_sound {
            return Err(WcStatus::LocQpOpErr);
        }
        let here = Place { mr: MrId(posted.mr), offset: posted.offset };
        if inline.is_none() && len > 0 {
            let access = if gives { Access::LOCAL_READ } else { Access::LOCAL_WRITE };
            let pd = self.connections.at(at).local_pd;
            let span = host.mrs.span(pd, here.mr, access, here.offset, len.into());
            span.map_err(|_refused| WcStatus::LocProtErr)?;
        }
        let work = Work {
            connection: at,
            owner: Side::Stateful,
            slot: posted.slot,
            generation: posted.generation,
            sequence: posted.sequence,
            op,
            immediate: posted.immediate,
            is_of_write: false,
            here,
            there: Place { mr: MrId(posted.remote_mr), offset: posted.remote_offset },
            len,
            key: FrameKey::NONE,
            inline: inline.map(|line| inline_of(line.0.map(u64::to_le_bytes).as_flattened())),
            told: (ZTime(0), now),
            partner: None,
            recv: None,
            transfer: None,
            status: WcStatus::WrFlushErr,
            byte_len: 0,
        };
        if !self.queue(host, now, at, work) {
            return Err(WcStatus::GeneralErr);
        }
        if op.is_recv() {
            self.recv_is_posted(at, posted.sequence);
        }
        let posted = &mut self.connections.at_mut(at).posted[usize::from(op.is_recv())];
        *posted = Sequence(posted_sequence).next();
        self.advance(host, now, at);
        Ok(())
    }

    /// Puts a work request behind the others of its queue. `false` if there is no room.
    fn queue(&mut self, host: &Tables<'_>, now: Instant, at: u16, work: Work) -> bool {
        let (owner, op) = (work.owner, work.op);
        let connection = self.connections.at_mut(at);
        let is_taken = self.works.has_room()
            && match owner {
                Side::Stateless => self.shares.peer_takes(&mut connection.of_z, op.is_recv()),
                Side::Stateful if connection.rows_to_come > 0 => {
                    connection.rows_to_come -= 1;
                    true
                }
                Side::Stateful => {
                    let port = host.portals.get(connection.portal.into());
                    let stateful_max = port.map_or(0, StarPort::stateful_max);
                    self.shares.takes(connection.portal, stateful_max, 1)
                }
            };
        let Some(row) = is_taken.then(|| self.works.insert(work)).flatten() else { return false };
        connection.works += 1;
        let queues = &mut connection.queues[owner as usize];
        let list = if op.is_recv() { &mut queues.recvs } else { &mut queues.sends };
        list.push_back(&mut self.work_links, row);
        if connection.works == 1 {
            self.watch(at, now);
        }
        true
    }

    //= star#III-B-wqep
    /// Takes the work requests of a WQEP. It is acknowledged in any case, by an EA or a CQEP, which
    /// says what was taken so far.
    pub(super) fn take_wqep(
        &mut self,
        host: &mut Tables<'_>,
        now: Instant,
        seen: &Authentic<&Seen>,
        wqep: &Wqep,
        payload: &[u8],
    ) {
        let at = seen.connection;
        let mut is_first_send = true;
        // By whether it is that of RECVs: what is behind one that has no room waits with it.
        let mut is_full = [false; 2];
        for wqe in wqep.wqes(payload) {
            let Ok((wqe, inline)) = wqe else {
                host.counters.drop_frame(StarDrop::Nonsense);
                break;
            };
            let WqeKind::Transfer(op) = wqe.kind else {
                self.take_wish(at, wqep.header.counter);
                continue;
            };
            if is_full[usize::from(op.is_recv())] {
                continue;
            }
            let connection = self.connections.at(at);
            let next = if op.is_recv() { connection.taken_recv } else { connection.taken_send };
            let ahead = wqe.sequence.since(next).cast_signed();
            if ahead < 0 {
                continue;
            }
            if ahead > 0 {
                host.counters.drop_frame(StarDrop::OutOfSequence);
                continue;
            }
            // Of one that is not new, the count could be of an earlier round of the sequences.
            if !op.is_recv() && core::mem::take(&mut is_first_send) {
                self.settle_known(at, wqe.oldest_open());
            }
            let work = work_of(at, op, &wqe, inline, seen.time, now);
            if !self.queue(host, now, at, work) {
                host.counters.drop_frame(StarDrop::NoRoom);
                is_full[usize::from(op.is_recv())] = true;
                continue;
            }
            let connection = self.connections.at_mut(at);
            let taken = next.next();
            *(if op.is_recv() { &mut connection.taken_recv } else { &mut connection.taken_send }) =
                taken;
        }
        self.acknowledge(host, at);
        self.advance(host, now, at);
    }

    /// An EA must be sent: one for each frame that is acknowledged, or one for all.
    pub(super) fn acknowledge(&mut self, host: &Tables<'_>, at: u16) {
        let eas_due = &mut self.connections.at_mut(at).eas_due;
        *eas_due = match host.config.settings().framing {
            Framing::Faithful => eas_due.saturating_add(1),
            Framing::Fused => 1,
        };
    }
}

fn inline_of(octets: &[u8]) -> Inline {
    let mut inline = [0; INLINE_MAX];
    let len = octets.len().min(INLINE_MAX);
    inline[..len].copy_from_slice(&octets[..len]);
    Inline(inline)
}

fn work_of(at: u16, op: WqeOp, wqe: &Wqe, inline: &[u8], sealed: ZTime, now: Instant) -> Work {
    let Sequence(sequence) = wqe.sequence;
    Work {
        connection: at,
        owner: Side::Stateless,
        slot: wqe.slot.0,
        generation: wqe.generation.0,
        sequence,
        op,
        immediate: wqe.immediate,
        is_of_write: false,
        here: Place { mr: wqe.remote_mr, offset: wqe.remote_offset },
        there: Place { mr: wqe.mr, offset: wqe.mr_offset },
        len: wqe.len,
        key: wqe.key,
        inline: wqe.is_inline.then(|| inline_of(inline)),
        told: (sealed, now),
        partner: None,
        recv: None,
        transfer: None,
        status: WcStatus::Success,
        byte_len: 0,
    }
}
