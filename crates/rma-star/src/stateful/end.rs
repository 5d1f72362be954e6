//! Ends connections, and does what is due by time (§III-C3: timers).
//!
//! A work request that fails takes its connection along, as in RC: the order of what is behind it
//! could not be kept. Its application is told at once that the connection has failed; the work
//! requests are reported when every frame that was ever sent of the connection is dead by Z's clock
//! (S2): until then a copy on its way could still have effect.
//!
//! However a connection ends, the peer is told once, by a STATE (ours): it need not find out by its
//! timers. That is a help and no promise: nobody sends it again, and nothing waits for it but that
//! the connection is forgotten, which happens when it is sent, or when all is dead. A peer tells
//! the same. Then what is under way is still answered as it would be: the connection ends when that
//! is, so what was done is not reported as failed.

use rma_core::{index_list::IndexList, op::OpStatus, time::Instant};

use super::{
    SIDES, Stateful,
    connection::{Connection, Phase, Roles},
    paths::WAYS,
    report,
    roles::expect_no_more,
    under_way::What,
};
use crate::{names::Side, portal::Report, tables::Tables, verbs::WcStatus, wire::Answer};

/// After how many times of being sent again a chunk that is lost says nothing about the path any
/// longer: its connection is dead, mostly. Fewer: what is lost on a full path leaves room for more
/// there. More: new connections to a peer that is back wait for those that died with it.
const COUNTED_TRIES: u8 = 1;

impl Stateful {
    /// The connection has failed.
    pub(super) fn fail(&mut self, host: &mut Tables<'_>, now: Instant, at: u16, status: WcStatus) {
        let connection = self.connections.at(at);
        if connection.phase != Phase::Open {
            return;
        }
        let (portal, qp) = (connection.portal, connection.qp);
        report(host, portal, &Report::Failed { qp, status });
        self.die(host, now, at);
    }

    //= star#ours-close
    /// The connection ends if the peer has told that it has, and no answer is awaited that says
    /// what became of a work request. What waits for a RECV of the peer will not get one.
    pub(super) fn end_if_closed_there(&mut self, host: &mut Tables<'_>, now: Instant, at: u16) {
        let Some(connection) = self.connections.get(at).filter(|it| it.is_closed_there) else {
            return;
        };
        let is_awaited = |frame: u16| {
            let sent = self.frames.at(frame);
            !sent.is_refused
                && match sent.what {
                    What::Chunk { .. } => true,
                    What::Cqes { wants_answer, .. } => wants_answer,
                    _ => false,
                }
        };
        let chunks = connection.chunks.iter(&self.frame_links);
        let mut frames = chunks.chain(connection.events.iter(&self.frame_links));
        let awaits = frames.any(is_awaited);
        drop(frames);
        if !awaits {
            self.fail(host, now, at, WcStatus::WrFlushErr);
        }
    }

    /// The application ends the connection.
    pub(crate) fn close(&mut self, host: &mut Tables<'_>, now: Instant, portal: u16, qp: u32) {
        let Some(at) = self.find(portal, qp) else {
            report(host, portal, &Report::Closed { qp });
            return;
        };
        let connection = self.connections.at_mut(at);
        connection.is_closing = true;
        match connection.phase {
            Phase::Open => self.die(host, now, at),
            Phase::Dying => {}
            Phase::Over => self.bury(host, at),
        }
    }

    /// All connections of a portal end.
    pub(crate) fn leave(&mut self, host: &mut Tables<'_>, now: Instant, portal: u16) {
        for at in 0..self.connections.capacity() as u16 {
            let of_portal = self.connections.get(at).filter(|it| it.portal == portal);
            if let Some(qp) = of_portal.map(|connection| connection.qp) {
                self.close(host, now, portal, qp);
            }
        }
    }

    /// Sends no more, and waits until everything that was sent is dead.
    fn die(&mut self, host: &mut Tables<'_>, now: Instant, at: u16) {
        let connection = self.connections.at_mut(at);
        connection.phase = Phase::Dying;
        connection.dead_at = now + self.dead_after;
        connection.eas_due = 0;
        connection.wanted = None;
        connection.probe_is_due = false;
        let roles = core::mem::replace(&mut connection.roles, Roles::Stay);
        expect_no_more(host, roles, connection.portal, connection.qp);
        self.leave_lists(at, now);
        while let Some(frame) = self.first_frame(at) {
            if let What::Cqes { mut told, .. } = self.forget_frame(frame) {
                let done = &mut self.connections.at_mut(at).done;
                while let Some(row) = told.pop_front(&mut self.work_links) {
                    done.push_back(&mut self.work_links, row);
                }
            }
        }
        debug_assert!(self.connections.at(at).again.is_empty(), "none is left");
        self.dying.push_back(&mut self.dying_links, at);
        self.note_end(at, Answer::Gone);
        let connection = self.connections.at_mut(at);
        // Until when frames to Z are valid is known once it was heard of.
        let close_is_due = connection.clock.is_known() && !connection.is_closed_there;
        connection.close_is_due = close_is_due;
        self.relist(at);
        if !close_is_due {
            self.flush_if_dead(host, now, at);
        }
    }

    /// Nothing is to be done for a connection any more but to end it.
    pub(super) fn leave_lists(&mut self, at: u16, now: Instant) {
        let connection = self.connections.at_mut(at);
        if connection.phase == Phase::Open {
            connection.phase = Phase::Over;
        }
        self.registry.drop_all(&mut connection.rules);
        self.shares.gives(connection.portal, core::mem::take(&mut connection.rows_to_come));
        if core::mem::replace(&mut connection.is_listed, false) {
            self.ready.remove(&mut self.ready_links, at);
        }
        for way in WAYS {
            let connection = self.connections.at_mut(at);
            if core::mem::replace(&mut connection.is_on_path[way as usize], false) {
                self.paths.leave(connection.paths[way as usize], way, at);
            }
        }
        for side in SIDES {
            self.set_blocked(at, side, None);
        }
        self.watch(at, now);
    }

    fn first_frame(&self, at: u16) -> Option<u16> {
        let connection = self.connections.at(at);
        connection.chunks.front().or(connection.events.front())
    }

    /// Reports all work requests of a connection that ends, if every frame of it is dead.
    pub(super) fn flush_if_dead(&mut self, host: &mut Tables<'_>, now: Instant, at: u16) {
        if self.connections.at(at).is_dead(now) {
            self.flush(host, at);
        }
    }

    fn flush(&mut self, host: &mut Tables<'_>, at: u16) {
        self.dying.remove(&mut self.dying_links, at);
        let connection = self.connections.at_mut(at);
        connection.phase = Phase::Over;
        connection.close_is_due = false;
        if core::mem::replace(&mut connection.is_listed, false) {
            self.ready.remove(&mut self.ready_links, at);
        }
        self.empty(at, |stateful, row| stateful.end_work(host, row));
        if self.connections.at(at).is_closing {
            self.bury(host, at);
        }
    }

    /// Ends every work request of a connection.
    pub(super) fn empty(&mut self, at: u16, mut end: impl FnMut(&mut Self, u16)) {
        let connection = self.connections.at_mut(at);
        let mut lists: [IndexList; 9] = Default::default();
        let [own, peers] = &mut connection.queues;
        let queues = [own, peers].into_iter().flat_map(|queues| {
            [&mut queues.sends, &mut queues.moving, &mut queues.answering, &mut queues.recvs]
        });
        for (list, place) in lists.iter_mut().zip(queues.chain([&mut connection.done])) {
            *list = core::mem::take(place);
        }
        for mut list in lists {
            while let Some(row) = list.pop_front(&mut self.work_links) {
                if let Some(partner) = self.works[row].partner {
                    end(self, partner);
                }
                end(self, row);
            }
        }
        let connection = self.connections.at(at);
        debug_assert!(connection.works == 0 && connection.of_z.is_empty(), "all have ended");
    }

    /// Forgets a work request, and reports it if it is this host's own.
    fn end_work(&mut self, host: &mut Tables<'_>, row: u16) {
        match self.works[row].owner {
            Side::Stateful => self.report_end(host, row),
            Side::Stateless => self.free(row),
        }
    }

    /// Forgets a connection that is over.
    fn bury(&mut self, host: &mut Tables<'_>, at: u16) {
        let connection = self.forget(host, at);
        report(host, connection.portal, &Report::Closed { qp: connection.qp });
    }

    /// Forgets a connection: its portal may have another one.
    pub(super) fn forget(&mut self, host: &mut Tables<'_>, at: u16) -> Connection {
        let mut connection = self.connections.remove(at);
        if let Some(responder) = &mut connection.rc {
            self.replies.clear(&mut responder.replies);
        }
        if connection.is_listed {
            self.ready.remove(&mut self.ready_links, at);
        }
        self.paths.release(connection.paths);
        self.shares.release(&connection.of_z);
        if let Some(port) = host.portals.get_mut(connection.portal.into()) {
            port.stateful_closed();
        }
        connection
    }

    /// When [`Stateful::handle_timeout`] has work next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let frame = self.frames.first_due().map(|(due, _)| due);
        let quiet = self.watched.front();
        let quiet = quiet.map(|at| self.connections.at(at).quiet_since + self.probe_interval);
        let dead = self.dying.front().map(|at| self.connections.at(at).dead_at);
        let blocked = SIDES.iter().filter_map(|&side| Some(self.first_blocked(side)?.0)).min();
        let paced = self.paths.poll_timeout();
        [frame, quiet, dead, blocked, paced].into_iter().flatten().min()
    }

    /// When the connection has waited too long whose next message of that side has waited longest.
    fn first_blocked(&self, side: Side) -> Option<(Instant, u16)> {
        let at = self.blocked[side as usize].front()?;
        let since = self.connections.at(at).blocked_since[side as usize]?;
        Some((since + self.rnr_timeout, at))
    }

    /// Whether there is nothing that time could change, as where no work request is under way.
    #[inline]
    fn is_still(&self) -> bool {
        self.watched.is_empty()
            && self.blocked.iter().all(IndexList::is_empty)
            && self.dying.is_empty()
            && self.frames.is_still()
            && self.paths.poll_timeout().is_none()
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, host: &mut Tables<'_>, now: Instant) {
        if self.is_still() {
            return;
        }
        while let Some(frame) = self.frames.next_due(now) {
            self.frame_is_due(host, now, frame);
        }
        while let Some(at) = self.watched.front()
            && self.connections.at(at).quiet_since + self.probe_interval <= now
        {
            if core::mem::replace(&mut self.connections.at_mut(at).probe_is_due, true) {
                // The last question could not even be sent: this host has no message counters, as
                // when its disk is full. Nothing else would end what is posted (S1).
                self.fail(host, now, at, WcStatus::GeneralErr);
                continue;
            }
            self.watch(at, now);
            self.relist(at);
        }
        for side in SIDES {
            while let Some((_, at)) = self.first_blocked(side).filter(|&(due, _)| due <= now) {
                self.give_up_blocked(host, now, at, side);
            }
        }
        while let Some(at) = self.dying.front()
            && self.connections.at(at).dead_at <= now
        {
            debug_assert!(self.connections.at(at).is_dead(now), "W and a bit is over");
            self.flush(host, at);
        }
        self.paths.handle_timeout(now);
    }

    /// A frame was not answered in time. Its copy is dead.
    fn frame_is_due(&mut self, host: &mut Tables<'_>, now: Instant, frame: u16) {
        let at = self.frames.at(frame).connection;
        if self.frames.at(frame).is_refused {
            self.frames.send_once_more(frame, &mut self.connections.at_mut(at).again);
            self.relist(at);
            return;
        }
        let tries = self.frames.at(frame).tries;
        if tries <= COUNTED_TRIES {
            self.note_outcome(now, frame, OpStatus::Timeout);
        }
        if tries >= COUNTED_TRIES {
            self.free_charge(frame);
        }
        let connection = self.connections.at(at);
        // Z answers what is sent again, for as long as one likes.
        let is_forgotten = connection.is_closed_there && connection.rc.is_some();
        if is_forgotten && tries > 0 {
            return self.fail(host, now, at, WcStatus::WrFlushErr);
        }
        if self.send_again(frame) {
            self.relist(at);
            return;
        }
        if matches!(self.frames.at(frame).what, What::Switch) {
            // The engine of a peer may live though its application does not look at what it asks.
            return self.stay(host, now, at);
        }
        let status = WcStatus::RetryExcErr;
        let told = match &self.frames.at(frame).what {
            What::Chunk { work, .. } => Some(*work),
            What::Cqes { told, .. } => told.front(),
            What::Ask { .. } => self.connections.at(at).queues[0].sends.front(),
            What::Greeting | What::Probe => None,
            What::Switch | What::Transfer | What::Commit => None,
        };
        // The work request of this host that it is about, if any.
        let own = told.and_then(|row| {
            let work = &self.works[row];
            if work.owner == Side::Stateful { Some(row) } else { work.partner }
        });
        if let Some(own) = own.filter(|&own| self.works[own].owner == Side::Stateful) {
            self.works[own].status = status;
        }
        self.fail(host, now, at, status);
    }

    /// A frame must be sent again. `false` if it was sent often enough.
    pub(super) fn send_again(&mut self, frame: u16) -> bool {
        let at = self.frames.at(frame).connection;
        self.frames.send_again(frame, &mut self.connections.at_mut(at).again)
    }

    /// The other side has had no RECV for too long.
    fn give_up_blocked(&mut self, host: &mut Tables<'_>, now: Instant, at: u16, side: Side) {
        self.set_blocked(at, side, None);
        let unwanted = self.unwanted(at);
        let connection = self.connections.at_mut(at);
        let sends = &mut connection.queues[side as usize].sends;
        let Some(row) = unwanted.or(sends.front()) else { return };
        let status = WcStatus::RnrRetryExcErr;
        self.works[row].status = status;
        match side {
            Side::Stateful => self.fail(host, now, at, status),
            Side::Stateless => {
                sends.remove(&mut self.work_links, row);
                self.tell_failure(at, row);
                self.relist(at);
            }
        }
    }
}
