//! Z: the library, which knows its work requests, and the engine, which knows guard words, QP words
//! and a filter.
//!
//! A step of the engine is one frame, with its look at the clock, at the guard and the copy: what a
//! pause between these does is the model of the four hops' to show. A step of the library is one
//! WC, or all failures of a connection.

use super::{
    model::State,
    network::{Frame, Network, Piece},
    script::{CHUNKS_MAX, CONNECTIONS_MAX, JOBS_MAX, JobId, Kind, Mistake, SLOTS_MAX, Script},
    stateful::{self, Stateful},
};

/// The content of a slot's word. Slot and generation are the job's name, and so is the QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Guard {
    pub(super) job: JobId,
    pub(super) word: Word,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Word {
    Open,
    /// Only a mistake: the CQE is written, and the guard must be closed.
    Closing,
    Closed,
    Aborted,
}

/// A connection at Z. The QP word is open in one of these states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Qp {
    #[default]
    New,
    Open,
    /// The library waits before it reports failures.
    Aborted,
    /// Every WR has its WC.
    Over,
    /// Of a life before a restart. K_p was another: none of its frames is authentic.
    Dead,
}

/// The end of one of Z's WRs, as its application is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wc {
    Ok,
    Flushed,
    /// Z restarted, or never posted it: nobody is told anything.
    Lost,
}

/// The verdict of the table of guards on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Effect,
    Done,
    Gone,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Stateless {
    pub(super) guards: [Option<Guard>; SLOTS_MAX],
    pub(super) qps: [Qp; CONNECTIONS_MAX],
    /// One bit for each job whose WQE was taken.
    pub(super) posted: u8,
    /// The completion ring: the CQE of each WQE, which says whose message it is.
    pub(super) ring: [Option<JobId>; JOBS_MAX],
    pub(super) wcs: [Option<Wc>; JOBS_MAX],
    /// Copies of WRITEs that landed, by job.
    filter: [u8; JOBS_MAX],
    /// The MR was deregistered.
    pub(super) row_gone: bool,
    /// How many copies of each GD had been sent when its connection was aborted.
    asked: [[u8; CHUNKS_MAX as usize]; JOBS_MAX],
    /// Only a mistake: GDAs that wait for the device.
    pub(super) queued: Network,
    pub(super) restarted: bool,
}

impl Stateless {
    pub(super) fn is_posted(&self, job: JobId) -> bool {
        self.posted & 1 << job != 0
    }

    pub(super) fn qp(&self, script: &Script, job: JobId) -> Qp {
        self.qps[usize::from(script.job(job).connection)]
    }

    /// Whether a connection may be made: beside the others or, if it has the same QP, after them.
    pub(super) fn may_connect(&self, script: &Script, connection: u8) -> bool {
        let before = &self.qps[..usize::from(connection)];
        self.qps[usize::from(connection)] == Qp::New
            && (!script.one_qp || before.iter().all(|qp| matches!(qp, Qp::Over | Qp::Dead)))
    }

    /// Whether the WQE can be taken: it is the next of its queue, and its slot is free.
    pub(super) fn may_post(&self, script: &Script, job: JobId) -> bool {
        let free = self.guards[slot_of(script, job)].is_none_or(|guard| {
            guard.word != Word::Closing && self.wcs[usize::from(guard.job)].is_some()
        });
        let mut earlier = script.earlier(job).filter(|&it| script.job(it).is_at_z());
        script.job(job).is_at_z()
            && free
            && self.qp(script, job) == Qp::Open
            && !self.is_posted(job)
            && self.wcs[usize::from(job)].is_none()
            && earlier.all(|earlier| self.is_posted(earlier))
    }

    /// Whether a CQE has come that the library may tell of: in order of the queue.
    pub(super) fn may_complete(&self, script: &Script, job: JobId) -> bool {
        let mut earlier = script.earlier(job).filter(|&it| script.job(it).is_at_z());
        let in_order = earlier.all(|earlier| self.wcs[usize::from(earlier)] == Some(Wc::Ok));
        self.ring[usize::from(job)].is_some()
            && self.wcs[usize::from(job)].is_none()
            && matches!(self.qp(script, job), Qp::Open | Qp::Aborted)
            && (in_order || script.errs(Mistake::WcsNotBySequence))
    }

    /// Whether there is something to abort, or to close: F may have use for a connection whose WRs
    /// are all done at Z.
    pub(super) fn may_abort(&self, connection: u8) -> bool {
        self.qps[usize::from(connection)] == Qp::Open
    }

    /// Whether the library may report the failures of an aborted connection: what is complete it
    /// has reported before.
    pub(super) fn may_flush(&self, script: &Script, connection: u8) -> bool {
        self.qps[usize::from(connection)] == Qp::Aborted
            && !script.ids_of(connection).any(|job| self.may_complete(script, job))
    }

    /// The same of RECVs, before it has waited.
    pub(super) fn may_flush_receives(&self, script: &Script, connection: u8) -> bool {
        script.receives_at_once && self.may_flush(script, connection)
    }

    /// Whether the application was told how a WR ended.
    pub(super) fn is_told(&self, job: JobId) -> bool {
        matches!(self.wcs[usize::from(job)], Some(Wc::Ok | Wc::Flushed))
    }

    /// Whether Z has given its application access to what the job's frames are about.
    fn is_open(&self, script: &Script, job: JobId) -> bool {
        let at = usize::from(job);
        let open = self.is_posted(job) && self.ring[at].is_none() && self.wcs[at].is_none();
        let shared = !script.job(job).is_at_z() && !self.row_gone;
        (open || shared) && self.qp(script, job) == Qp::Open
    }

    /// Whether a frame of F changes nothing any longer: there is no effect, and F has no use for
    /// the answer, or has it before it.
    pub(super) fn has_no_use_for(
        &self,
        script: &Script,
        f: &Stateful,
        network: Network,
        frame: Frame,
    ) -> bool {
        let job = frame.job();
        let qp = self.qp(script, job);
        let guard = self.guards[slot_of(script, job)];
        let open = guard == Some(Guard { job, word: Word::Open });
        let answered = |answer: Frame| f.has_no_use_for(script, answer) || network.has(answer);
        match frame {
            Frame::Rd(it) if !script.job(job).is_at_z() => {
                let landed = self.filter[usize::from(job)] & 1 << it.copy != 0;
                qp != Qp::Open || self.row_gone || landed
            }
            Frame::Rd(it) => qp == Qp::Dead || !open && answered(Frame::Rda(it)),
            Frame::Gd(it) => qp == Qp::Dead || !open || answered(Frame::Gda(it)),
            Frame::Cqep { copy, .. } => {
                let unanswered = || script.is_quiet(job, copy);
                qp == Qp::Dead || !open && (unanswered() || answered(Frame::Ea { job, copy }))
            }
            _ => false,
        }
    }

    /// The table of guards, for a frame of `from` that names that WQE.
    fn look(&self, script: &Script, job: JobId, from: u8) -> Verdict {
        let connection = script.job(job).connection;
        if script.errs(Mistake::NoGuard) {
            return Verdict::Effect;
        }
        let open = self.qps[usize::from(from)] == Qp::Open || script.errs(Mistake::NoQpWord);
        let own = from == connection || script.one_qp || script.errs(Mistake::GuardWithoutQp);
        let guard = self.guards[slot_of(script, job)];
        match guard.filter(|guard| guard.job == job && own).map(|guard| guard.word) {
            Some(Word::Open | Word::Closing) if open => Verdict::Effect,
            Some(Word::Open | Word::Closing | Word::Aborted) => Verdict::Gone,
            Some(Word::Closed) => Verdict::Done,
            None if open => Verdict::Done,
            None => Verdict::Gone,
        }
    }
}

/// Returns the index of a job's guard.
fn slot_of(script: &Script, job: JobId) -> usize {
    script.job(job).slot.into()
}

/// The engine takes a WQE: the guard is open, and the WQEP on its way.
pub(super) fn post(script: &Script, state: &mut State, job: JobId) {
    let slot = slot_of(script, job);
    state.z.guards[slot] = Some(Guard { job, word: Word::Open });
    state.z.posted |= 1 << job;
    state.network.send(Frame::Wqep { job });
    if script.job(job).kind == (Kind::SendOfZ { inline: true }) {
        state.network.send(Frame::YoungWqep { job });
    }
    say_what_is_complete(script, state, job);
}

/// The library posts a WQE whose predecessors are complete, or posts it again: its WQEP says so.
fn say_what_is_complete(script: &Script, state: &mut State, job: JobId) {
    let z = &state.z;
    let mut earlier = script.earlier(job).peekable();
    if script.quiet
        && script.job(job).is_fetched()
        && earlier.peek().is_some()
        && earlier.all(|earlier| z.wcs[usize::from(earlier)] == Some(Wc::Ok))
        && z.qp(script, job) == Qp::Open
        && z.is_posted(job)
    {
        state.network.send(Frame::KnowingWqep { job });
    }
}

/// RD, GD and CQEP.
pub(super) fn receive(script: &Script, state: &mut State, frame: Frame) {
    let job = frame.job();
    if matches!(state.z.qp(script, job), Qp::New | Qp::Dead) {
        return;
    }
    match frame {
        Frame::Rd(piece) if !script.job(job).is_at_z() => receive_write(script, state, piece),
        Frame::Rd(piece) => receive_rd(script, state, piece),
        Frame::Gd(piece) => receive_gd(script, state, piece),
        Frame::Cqep { job, copy } => receive_cqep(script, state, job, copy),
        _ => unreachable!("for F"),
    }
}

fn receive_rd(script: &Script, state: &mut State, piece: Piece) {
    let Some(wqe) = state.f.wqe(piece.job) else { return };
    let verdict = state.z.look(script, wqe, script.job(piece.job).connection);
    if verdict == Verdict::Effect {
        land(script, state, wqe, piece);
        if script.completes(piece.job, piece.chunk) {
            complete_wqe(script, state, wqe, piece.job);
        }
    }
    if verdict != Verdict::Gone {
        state.network.send(Frame::Rda(piece));
    }
}

fn receive_gd(script: &Script, state: &mut State, piece: Piece) {
    let Some(wqe) = state.f.wqe(piece.job) else { return };
    if state.z.look(script, wqe, script.job(piece.job).connection) == Verdict::Effect {
        if script.errs(Mistake::NoSecondLook) {
            state.z.queued.send(Frame::Gda(piece));
        } else {
            write_gda(script, state, piece, wqe);
        }
    }
}

/// Data is read from the application's memory, and goes.
pub(super) fn write_gda(script: &Script, state: &mut State, piece: Piece, wqe: JobId) {
    state.seen.astray |= !state.z.is_open(script, wqe);
    state.network.send(Frame::Gda(piece));
}

fn receive_cqep(script: &Script, state: &mut State, job: JobId, copy: u8) {
    let Some(wqe) = state.f.wqe(job) else { return };
    let verdict = state.z.look(script, wqe, script.job(job).connection);
    if verdict == Verdict::Effect {
        complete_wqe(script, state, wqe, job);
    }
    if verdict != Verdict::Gone && !script.is_quiet(job, copy) {
        state.network.send(Frame::Ea { job, copy });
    }
}

/// An RD of F's WRITE: no guard, but the MR's row, the QP word and the filter.
fn receive_write(script: &Script, state: &mut State, piece: Piece) {
    let z = &mut state.z;
    let open = z.qp(script, piece.job) == Qp::Open || script.errs(Mistake::NoQpWord);
    let shared = !z.row_gone || script.errs(Mistake::NoRow);
    let copies = &mut z.filter[usize::from(piece.job)];
    let fresh = *copies & 1 << piece.copy == 0 || script.errs(Mistake::NoFilter);
    if open && shared && fresh {
        *copies |= 1 << piece.copy;
        land(script, state, piece.job, piece);
        state.network.send(Frame::Rda(piece));
    }
}

/// The filter has no room: only if F takes this for an answer does it change anything.
pub(super) fn refuse_write(script: &Script, state: &mut State, piece: Piece) {
    if state.z.qp(script, piece.job) == Qp::Open
        && state.z.filter[usize::from(piece.job)] & 1 << piece.copy == 0
    {
        stateful::note_busy(script, state, piece);
    }
}

fn land(script: &Script, state: &mut State, wqe: JobId, piece: Piece) {
    let State { z, f, seen, .. } = state;
    seen.astray |= !z.is_open(script, wqe);
    seen.late |= z.is_told(wqe) || f.has_reported(piece.job);
    let write = script.job(piece.job).kind == Kind::WriteOfF;
    seen.overtaken |= write && script.later(piece.job).any(|later| seen.took_effect(script, later));
    seen.landed[usize::from(piece.job)] |= 1 << piece.chunk;
}

/// The CQE goes into the completion ring, and the guard closes.
fn complete_wqe(script: &Script, state: &mut State, wqe: JobId, message: JobId) {
    let State { z, f, seen, .. } = state;
    let fetched = script.job(wqe).is_fetched();
    seen.astray |= !z.is_open(script, wqe);
    seen.late |= z.is_told(wqe) || !fetched && f.has_reported(message);
    seen.hollow |= seen.landed[usize::from(message)] != script.all(message);
    let mut writes = script.earlier(message).filter(|&it| script.job(it).kind == Kind::WriteOfF);
    seen.overtaken |= writes.any(|write| seen.landed[usize::from(write)] == 0);
    let completed = &mut seen.completed[usize::from(message)];
    *completed = 2.min(*completed + 1);
    let before = z.ring[usize::from(wqe)].replace(message);
    seen.twice |= before.is_some();
    if let Some(guard) = &mut z.guards[slot_of(script, wqe)]
        && guard.job == wqe
    {
        let late = script.errs(Mistake::CloseAfterCqe);
        guard.word = if late { Word::Closing } else { Word::Closed };
    }
}

/// A hostile F makes what it has keys for: a CQEP that names any slot and generation, and data for
/// its own WQEs and for the MR that was shared with it.
pub(super) fn receive_forged(
    script: &Script,
    state: &mut State,
    from: u8,
    (wqe, data): (JobId, bool),
) {
    let z = &mut state.z;
    if script.job(wqe).is_at_z() {
        if z.look(script, wqe, from) != Verdict::Effect {
            return;
        }
        state.seen.astray |= !z.is_open(script, wqe) || script.job(wqe).connection != from;
        if !data {
            z.ring[usize::from(wqe)] = Some(wqe);
            z.guards[slot_of(script, wqe)] = Some(Guard { job: wqe, word: Word::Closed });
        }
    } else if z.qp(script, wqe) == Qp::Open && (!z.row_gone || script.errs(Mistake::NoRow)) {
        state.seen.astray |= !z.is_open(script, wqe);
    }
}

/// The library tells the application that a WR is done.
pub(super) fn complete(script: &Script, state: &mut State, job: JobId) {
    let State { z, seen, .. } = state;
    let ended = |it: JobId| z.wcs[usize::from(it)] == Some(Wc::Ok);
    let mut told = script.ids().filter(|&it| script.job(it).same_queue(script.job(job)));
    let message = z.ring[usize::from(job)];
    seen.disorder |= told.any(|it| ended(it) && z.ring[usize::from(it)] >= message);
    z.wcs[usize::from(job)] = Some(Wc::Ok);
    script.later(job).for_each(|later| say_what_is_complete(script, state, later));
}

/// The engine, as arbiter: the QP word closes, and open slots are aborted.
pub(super) fn abort(script: &Script, state: &mut State, connection: u8) {
    let State { z, f, .. } = state;
    z.qps[usize::from(connection)] = Qp::Aborted;
    for guard in z.guards.iter_mut().flatten() {
        let open = matches!(guard.word, Word::Open | Word::Closing);
        let kept = script.errs(Mistake::SlotsNotAborted);
        if open && !kept && script.job(guard.job).connection == connection {
            guard.word = Word::Aborted;
        }
    }
    for job in script.ids_of(connection).filter(|&job| script.job(job).is_fetched()) {
        z.asked[usize::from(job)] = f.copies_sent(job);
    }
}

/// The library reports RECVs that failed.
pub(super) fn flush_receives(script: &Script, state: &mut State, connection: u8) {
    for job in script.ids_of(connection) {
        if script.job(job).kind == Kind::SendOfF {
            state.z.wcs[usize::from(job)].get_or_insert(Wc::Flushed);
        }
    }
}

/// W has passed since the abort, and a drift's worth: GDs that were sent before it are too old for
/// F, and WQEPs as well. The library reports whatever failed.
pub(super) fn flush(script: &Script, state: &mut State, connection: u8) {
    let waits = !script.errs(Mistake::NoWaitAfterAbort);
    for job in script.ids_of(connection) {
        let at = usize::from(job);
        if waits && !script.errs(Mistake::NoGdaWindow) {
            state.f.let_pass(job, state.z.asked[at]);
        }
        if waits && !script.errs(Mistake::InlineNotFresh) {
            state.network.remove(Frame::YoungWqep { job });
        }
        state.z.asked[at] = [0; CHUNKS_MAX as usize];
        state.z.wcs[at].get_or_insert(Wc::Flushed);
    }
    state.z.qps[usize::from(connection)] = Qp::Over;
}

/// The mistake's second step.
pub(super) fn close_late(state: &mut State, slot: usize) {
    if let Some(guard) = &mut state.z.guards[slot] {
        guard.word = Word::Closed;
    }
}

/// The process ends and another begins, under another K_p: same slots, generations from the start.
pub(super) fn restart(script: &Script, state: &mut State) {
    let z = &mut state.z;
    for connection in script.connections() {
        let qp = &mut z.qps[usize::from(connection)];
        if *qp != Qp::New {
            *qp = Qp::Dead;
            script.ids_of(connection).for_each(|job| {
                z.wcs[usize::from(job)].get_or_insert(Wc::Lost);
            });
        }
    }
    z.guards = Default::default();
    z.restarted = true;
}
