//! F: what it knows of both sides' work requests, and its own library.
//!
//! A step is one frame received or sent, with every WC that follows from it. A WC that has to wait
//! until copies are dead is a step of its own: it takes as long as they live, and afterwards the
//! network has none of them. *Dead* is what F knows by its lower bound of Z's clock; that Z takes
//! nothing which is dead follows from the bound, and is not modelled.

use super::{
    model::State,
    network::{Frame, Piece},
    script::{CHUNKS_MAX, CONNECTIONS_MAX, COPIES_MAX, JOBS_MAX, JobId, Kind, Mistake, Script},
};

/// A connection at F.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Connection {
    #[default]
    New,
    Live,
    /// F sends nothing more, takes nothing more, and reports failures as copies die.
    Failing,
    /// F restarted, and knows nothing of it.
    Gone,
}

/// The end of one of F's WRs, as its application is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    Ok,
    Failed,
    /// F restarted: nobody is told anything.
    Lost,
}

/// Of a CQE that Z has, as its WQEP says, or as F believes. No copy has this bit.
const KNOWN: u8 = 1 << COPIES_MAX;

/// F's knowledge of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Work {
    /// Z's WQE of the same place in its queue, once it came.
    wqe: Option<JobId>,
    /// Copies of each chunk's RD or GD that were sent.
    sent: [u8; CHUNKS_MAX as usize],
    /// Those of them that have their answer, one bit for each.
    answered: [u8; CHUNKS_MAX as usize],
    /// Copies of a WRITE that will not land any longer, and have no answer.
    settled: u8,
    /// Copies of each chunk's GD that are too old, counted from the first.
    too_old: [u8; CHUNKS_MAX as usize],
    /// Chunks that came by GDA or inline.
    landed: u8,
    /// Copies of the CQEP that were sent.
    cqeps: u8,
    /// The bit of the one whose EA came first, or [`KNOWN`].
    eas: u8,
    pub(super) outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Stateful {
    pub(super) work: [Work; JOBS_MAX],
    pub(super) connections: [Connection; CONNECTIONS_MAX],
    pub(super) restarted: bool,
}

impl Stateful {
    fn of(&self, job: JobId) -> &Work {
        &self.work[usize::from(job)]
    }

    fn of_mut(&mut self, job: JobId) -> &mut Work {
        &mut self.work[usize::from(job)]
    }

    /// The WQE that a job's frames name.
    pub(super) fn wqe(&self, job: JobId) -> Option<JobId> {
        self.of(job).wqe
    }

    pub(super) fn outcome(&self, job: JobId) -> Option<Outcome> {
        self.of(job).outcome
    }

    pub(super) fn has_reported(&self, job: JobId) -> bool {
        matches!(self.outcome(job), Some(Outcome::Ok | Outcome::Failed))
    }

    pub(super) fn copies_sent(&self, job: JobId) -> [u8; CHUNKS_MAX as usize] {
        self.of(job).sent
    }

    pub(super) fn is(&self, script: &Script, job: JobId, connection: Connection) -> bool {
        self.connections[usize::from(script.job(job).connection)] == connection
    }

    /// Time has passed: the first copies of a job's GDs are too old.
    pub(super) fn let_pass(&mut self, job: JobId, copies: [u8; CHUNKS_MAX as usize]) {
        self.of_mut(job).too_old = copies;
    }

    /// Whether each job before has its WQE: F works in order.
    fn is_in_order(&self, script: &Script, job: JobId) -> bool {
        let mut earlier = script.earlier(job).filter(|&it| script.job(it).is_at_z());
        earlier.all(|earlier| self.wqe(earlier).is_some())
    }

    fn is_answered(&self, script: &Script, job: JobId) -> bool {
        let chunks = usize::from(script.chunks(job));
        self.of(job).answered[..chunks].iter().all(|&copies| copies != 0)
    }

    /// Whether a WRITE has landed, and lands no more.
    fn is_settled(&self, script: &Script, write: JobId) -> bool {
        let work = self.of(write);
        let sent = (1 << work.sent[0]) - 1;
        self.is_answered(script, write) && work.answered[0] | work.settled == sent
    }

    /// Whether a SEND may complete, or a WRITE land: earlier WRITEs have, and land no more.
    fn writes_are_settled(&self, script: &Script, before: JobId) -> bool {
        let is_write = |&job: &JobId| script.job(job).kind == Kind::WriteOfF;
        let early = script.errs(Mistake::AnsweredIsSettled);
        script.errs(Mistake::CompletesBeforeWrite)
            || script.earlier(before).filter(is_write).all(|write| {
                self.is_settled(script, write) || early && self.is_answered(script, write)
            })
    }

    /// Whether F may send an RD or GD of that chunk, the first time or once more.
    pub(super) fn may_send(&self, script: &Script, job: JobId, chunk: u8) -> bool {
        let (work, at) = (self.of(job), usize::from(chunk));
        let known = !script.job(job).is_at_z() || work.wqe.is_some();
        let mut others = (0..chunk).map(|other| work.answered[usize::from(other)]);
        let may = if script.completes(job, chunk) {
            let whole = others.all(|copies| copies != 0);
            (whole || script.errs(Mistake::CompletesBeforeData))
                && self.writes_are_settled(script, job)
        } else {
            script.job(job).kind != Kind::WriteOfF || self.writes_are_settled(script, job)
        };
        self.is(script, job, Connection::Live)
            && known
            && may
            && work.outcome.is_none()
            && self.is_in_order(script, job)
            && work.sent[at] < script.copies
            && work.answered[at] == 0
            && work.landed & 1 << chunk == 0
    }

    /// Whether F may send Z's CQE, the first time or once more.
    pub(super) fn may_send_cqep(&self, script: &Script, job: JobId) -> bool {
        let work = self.of(job);
        let done = match script.job(job).kind {
            Kind::SendOfF => {
                !script.fused
                    && self.is_answered(script, job)
                    && self.writes_are_settled(script, job)
            }
            Kind::SendOfZ { .. } => work.outcome == Some(Outcome::Ok),
            Kind::WriteOfZ => work.landed == script.all(job),
            Kind::WriteOfF => false,
        };
        self.is(script, job, Connection::Live)
            && done
            && work.eas == 0
            && work.cqeps < script.copies
    }

    /// Whether F has something to give up.
    pub(super) fn may_give_up(&self, script: &Script, connection: u8) -> bool {
        let waits = |job| script.job(job).is_at_f() && self.outcome(job).is_none();
        self.connections[usize::from(connection)] == Connection::Live
            && script.ids_of(connection).any(waits)
    }

    /// Whether the WRs before it in its queue have been reported.
    fn is_next(&self, script: &Script, job: JobId) -> bool {
        let mut earlier = script.earlier(job).filter(|&it| script.job(it).is_at_f());
        earlier.all(|earlier| self.outcome(earlier).is_some())
    }

    /// Whether a WRITE has landed, and some copies of it may land yet.
    pub(super) fn may_outlive(&self, script: &Script, job: JobId) -> bool {
        script.job(job).kind == Kind::WriteOfF
            && self.outcome(job).is_none()
            && self.is(script, job, Connection::Live)
            && self.is_answered(script, job)
            && !self.is_settled(script, job)
    }

    pub(super) fn may_report_failure(&self, script: &Script, job: JobId) -> bool {
        script.job(job).is_at_f()
            && self.outcome(job).is_none()
            && self.is(script, job, Connection::Failing)
            && self.is_next(script, job)
    }

    /// Whether nothing more is to be had from a frame to F, now or ever.
    pub(super) fn has_no_use_for(&self, script: &Script, frame: Frame) -> bool {
        let work = self.of(frame.job());
        let useless = match frame {
            Frame::Wqep { .. } | Frame::YoungWqep { .. } => work.wqe.is_some(),
            Frame::KnowingWqep { job } => {
                let mut earlier = script.earlier(job);
                work.wqe.is_some() && earlier.all(|earlier| self.of(earlier).eas != 0)
            }
            Frame::Rda(it) => {
                let answered = work.answered[usize::from(it.chunk)] & 1 << it.copy != 0;
                answered || work.outcome.is_some()
            }
            Frame::Gda(it) => {
                let too_old = it.copy < work.too_old[usize::from(it.chunk)];
                work.landed & 1 << it.chunk != 0 || too_old
            }
            Frame::Ea { .. } => work.eas != 0,
            Frame::Rd(_) | Frame::Gd(_) | Frame::Cqep { .. } => return false,
        };
        let connection = self.connections[usize::from(script.job(frame.job()).connection)];
        useless || matches!(connection, Connection::Failing | Connection::Gone)
    }
}

/// WQEP, RDA, GDA and EA.
pub(super) fn receive(script: &Script, state: &mut State, frame: Frame) {
    let f = &mut state.f;
    if !f.is(script, frame.job(), Connection::Live) {
        return;
    }
    match frame {
        Frame::Wqep { job } => {
            if script.errs(Mistake::WqepsSayAll) {
                settle_before(script, state, job);
            }
            take_wqe(script, state, job, false);
        }
        Frame::YoungWqep { job } => take_wqe(script, state, job, true),
        Frame::KnowingWqep { job } => {
            settle_before(script, state, job);
            take_wqe(script, state, job, false);
        }
        Frame::Rda(piece) => {
            let bound = !script.errs(Mistake::RdaNotBound);
            let work = f.of_mut(piece.job);
            if work.outcome.is_some() {
                return;
            }
            let sent = (1 << work.sent[usize::from(piece.chunk)]) - 1;
            let answers = if bound { 1 << piece.copy } else { sent };
            work.answered[usize::from(piece.chunk)] |= answers;
            report(script, state, piece.job);
        }
        Frame::Gda(piece) => {
            let work = f.of(piece.job);
            let in_time = piece.copy >= work.too_old[usize::from(piece.chunk)];
            if in_time && work.landed & 1 << piece.chunk == 0 {
                land(script, state, piece.job, 1 << piece.chunk);
            }
        }
        Frame::Ea { job, copy } => {
            let work = f.of_mut(job);
            if work.eas == 0 {
                work.eas = 1 << copy;
                report(script, state, job);
            }
        }
        _ => unreachable!("for Z"),
    }
}

/// Z has the CQEs of all before a job in its queue: those that wanted no EA need none.
fn settle_before(script: &Script, state: &mut State, job: JobId) {
    for earlier in script.earlier(job) {
        let work = state.f.of_mut(earlier);
        if work.eas == 0 {
            work.eas = KNOWN;
        }
    }
}

/// A WQE comes. F has posted all its RECVs.
fn take_wqe(script: &Script, state: &mut State, wqe: JobId, inline: bool) {
    let f = &mut state.f;
    let job = if script.errs(Mistake::NoWqepSequence) {
        let same = |&it: &JobId| script.job(it).same_queue(script.job(wqe));
        let waits = |&it: &JobId| script.job(it).is_at_z() && f.wqe(it).is_none();
        let Some(job) = script.ids().filter(same).find(waits) else { return };
        job
    } else if f.wqe(wqe).is_none() {
        wqe
    } else {
        return;
    };
    f.of_mut(job).wqe = Some(wqe);
    if inline && f.is_in_order(script, job) {
        land(script, state, job, script.all(job));
    }
}

/// Data lands at F, and what is whole completes in the same step.
fn land(script: &Script, state: &mut State, job: JobId, chunks: u8) {
    let State { z, f, seen, .. } = state;
    let wqe = f.wqe(job).expect("data comes after the WQE");
    seen.late |= z.is_told(wqe) || f.has_reported(job);
    f.of_mut(job).landed |= chunks;
    seen.landed[usize::from(job)] |= chunks;
    if !script.errs(Mistake::CompletesLater) {
        complete_fetched(script, state, job);
    }
}

/// RECVs whose message is whole complete, in order of Z's SENDs and WRITEs.
pub(super) fn complete_fetched(script: &Script, state: &mut State, job: JobId) {
    let State { z, f, seen, .. } = state;
    for next in script.ids().filter(|&it| script.job(it).same_queue(script.job(job))) {
        if f.of(next).landed != script.all(next) {
            break;
        }
        if script.job(next).is_at_f() && f.outcome(next).is_none() {
            let wqe = f.wqe(next).expect("it has landed");
            seen.late |= z.is_told(wqe);
            f.of_mut(next).outcome = Some(Outcome::Ok);
        }
    }
}

/// Whether the mistake leaves something to complete.
pub(super) fn may_complete_late(script: &Script, state: &State, job: JobId) -> bool {
    let work = state.f.of(job);
    script.errs(Mistake::CompletesLater)
        && matches!(script.job(job).kind, Kind::SendOfZ { .. })
        && work.landed == script.all(job)
        && work.outcome.is_none()
        && state.f.is(script, job, Connection::Live)
}

/// "Busy" came, and is taken for an answer.
pub(super) fn note_busy(script: &Script, state: &mut State, piece: Piece) {
    state.f.of_mut(piece.job).settled |= 1 << piece.copy;
    report(script, state, piece.job);
}

/// SENDs and WRITEs that are done are reported, in order.
fn report(script: &Script, state: &mut State, job: JobId) {
    let f = &mut state.f;
    for next in script.ids().filter(|&it| script.job(it).same_queue(script.job(job))) {
        let work = *f.of(next);
        let done = match script.job(next).kind {
            Kind::SendOfF if script.fused || script.errs(Mistake::OkBeforeEa) => {
                f.is_answered(script, next)
            }
            Kind::SendOfF => work.eas != 0,
            Kind::WriteOfF if script.errs(Mistake::NoWaitForDead) => f.is_answered(script, next),
            Kind::WriteOfF => f.is_settled(script, next),
            Kind::SendOfZ { .. } | Kind::WriteOfZ => return,
        };
        if work.outcome.is_none() && !done {
            return;
        }
        f.of_mut(next).outcome.get_or_insert(Outcome::Ok);
    }
}

/// F sends one more copy of a chunk's RD or GD.
pub(super) fn send(script: &Script, state: &mut State, job: JobId, chunk: u8) {
    let sent = &mut state.f.of_mut(job).sent[usize::from(chunk)];
    let piece = Piece { job, chunk, copy: *sent };
    *sent += 1;
    let fetched = script.job(job).is_fetched();
    state.network.send(if fetched { Frame::Gd(piece) } else { Frame::Rd(piece) });
}

pub(super) fn send_cqep(script: &Script, state: &mut State, job: JobId) {
    let work = state.f.of_mut(job);
    let copy = work.cqeps;
    work.cqeps += 1;
    if script.is_quiet(job, copy) && script.errs(Mistake::QuietIsAnswered) {
        work.eas = KNOWN;
    }
    state.network.send(Frame::Cqep { job, copy });
}

/// Every copy of a WRITE without RDA is dead by now.
pub(super) fn outlive(script: &Script, state: &mut State, job: JobId) {
    let work = state.f.of_mut(job);
    let waiting = (0..work.sent[0]).filter(|copy| work.answered[0] & 1 << copy == 0);
    for copy in waiting {
        state.network.remove(Frame::Rd(Piece { job, chunk: 0, copy }));
        work.settled |= 1 << copy;
    }
    report(script, state, job);
}

pub(super) fn give_up(state: &mut State, connection: u8) {
    state.f.connections[usize::from(connection)] = Connection::Failing;
}

/// Every copy of a job's frames is dead by now, and F reports that it failed.
pub(super) fn report_failure(script: &Script, state: &mut State, job: JobId) {
    let work = *state.f.of(job);
    let waits_for = |answered: bool| {
        let hurries = answered && script.errs(Mistake::AnsweredNotAwaited);
        !hurries && !script.errs(Mistake::NoWaitForDead)
    };
    for chunk in 0..script.chunks(job) {
        let at = usize::from(chunk);
        let awaited = |copy: &u8| waits_for(work.answered[at] & 1 << copy != 0);
        for copy in (0..work.sent[at]).filter(awaited) {
            state.network.remove(Frame::Rd(Piece { job, chunk, copy }));
        }
    }
    for copy in (0..work.cqeps).filter(|copy| waits_for(work.eas & 1 << copy != 0)) {
        state.network.remove(Frame::Cqep { job, copy });
    }
    state.f.of_mut(job).outcome = Some(Outcome::Failed);
}

/// The process ends and another begins, which knows nothing.
pub(super) fn restart(script: &Script, state: &mut State) {
    for connection in script.connections() {
        if state.f.connections[usize::from(connection)] != Connection::New {
            lose(script, state, connection);
        }
    }
    state.f.restarted = true;
}

/// Nobody at F is told anything of a connection any longer.
pub(super) fn lose(script: &Script, state: &mut State, connection: u8) {
    state.f.connections[usize::from(connection)] = Connection::Gone;
    for job in script.ids_of(connection) {
        state.f.of_mut(job).outcome.get_or_insert(Outcome::Lost);
    }
}
