//! The space that is explored: the work requests of a run, the bounds, and the mistake if there is
//! one.
//!
//! A script holds no state: it says how large the world is, not what happens in it.

/// Jobs in a script, at most.
pub(super) const JOBS_MAX: usize = 5;
/// Connections in a script, at most.
pub(super) const CONNECTIONS_MAX: usize = 2;
/// Slots of Z's portal, at most.
pub(super) const SLOTS_MAX: usize = 2;
/// Chunks of a message, at most.
pub(super) const CHUNKS_MAX: u8 = 2;
/// How often F sends a frame, at most: each copy has an IV and an expiry of its own.
pub(super) const COPIES_MAX: u8 = 2;

/// A job, by its place in the script. At Z it stands for the WQE with its slot and generation, at F
/// for the work request of the same place in its queue.
pub(super) type JobId = u8;

/// Work requests of the two sides that belong together, as both have the same place in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A SEND of F, and the RECV of Z that it fills: RD, CQEP.
    SendOfF,
    /// A WRITE of F, to an MR of Z: RD. Z has no work request.
    WriteOfF,
    /// A SEND of Z, and the RECV of F that it fills: WQEP, GD, CQEP. Whether its data comes in the
    /// WQEP as well.
    SendOfZ { inline: bool },
    /// A WRITE of Z: the same, but F has no work request.
    WriteOfZ,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) connection: u8,
    pub(super) kind: Kind,
    /// The slot of Z's WQE. Jobs that share one use it one after another.
    pub(super) slot: u8,
}

impl Job {
    pub(super) const fn new(kind: Kind, slot: u8) -> Self {
        Self { connection: 0, kind, slot }
    }

    /// The same, of the connection that comes next.
    pub(super) const fn of_next(self) -> Self {
        Self { connection: self.connection + 1, ..self }
    }

    /// Whether Z has a work request.
    pub(super) const fn is_at_z(self) -> bool {
        !matches!(self.kind, Kind::WriteOfF)
    }

    /// Whether F has a work request.
    pub(super) const fn is_at_f(self) -> bool {
        !matches!(self.kind, Kind::WriteOfZ)
    }

    /// Whether its data goes to F.
    pub(super) const fn is_fetched(self) -> bool {
        matches!(self.kind, Kind::SendOfZ { .. } | Kind::WriteOfZ)
    }

    /// Whether both are in the same queues: a send queue and a receive queue at either side.
    pub(super) const fn same_queue(self, other: Self) -> bool {
        self.connection == other.connection && self.is_fetched() == other.is_fetched()
    }
}

/// A part of the protocol that a mistaken script leaves out or does otherwise. Tests show which
/// promise each of them breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// Z acts on every authentic frame, whatever the guard word says.
    NoGuard,
    /// Z does not look at the QP word.
    NoQpWord,
    /// The guard word does not say whose QP the WQE is of.
    GuardWithoutQp,
    /// An abort closes the QP word, and leaves guards open.
    SlotsNotAborted,
    /// Z's library gives WCs as the CQEs come.
    WcsNotBySequence,
    /// The CQE is written in one step, and the guard closed in a later one.
    CloseAfterCqe,
    /// F lands a GDA however long ago its GD was sent.
    NoGdaWindow,
    /// F lands inline data however old the WQEP is.
    InlineNotFresh,
    /// F lands a GDA in time, and completes its RECV at any time.
    CompletesLater,
    /// Z's library reports failures as soon as the abort is done.
    NoWaitAfterAbort,
    /// F reports a failure when the copies that have no answer are dead, and does not wait for the
    /// others.
    AnsweredNotAwaited,
    /// F reports without regard to copies that are alive.
    NoWaitForDead,
    /// F takes WQEPs as they come.
    NoWqepSequence,
    /// An RDA answers whatever copy waits for one.
    RdaNotBound,
    /// Z takes a WRITE's copy as often as it comes.
    NoFilter,
    /// "Busy" counts as the answer that a copy of a WRITE waits for.
    BusyIsAnAnswer,
    /// F reports its SEND before the EA of the CQEP: the other reading of the paper's A1.
    OkBeforeEa,
    /// F sends C with the last chunk, the others answered or not.
    CompletesBeforeData,
    /// F, and so the SEND or WRITE that it works on, does not wait for earlier WRITEs.
    CompletesBeforeWrite,
    /// It waits until an earlier WRITE is answered, and not until its other copies are dead.
    AnsweredIsSettled,
    /// F takes a CQEP that wants no EA for answered once it is sent.
    QuietIsAnswered,
    /// F takes a WQEP for word that all before it in its queue are complete, whatever it says.
    WqepsSayAll,
    /// Z looks at the guard when a GD comes, and not when it reads the data.
    NoSecondLook,
    /// Z does not look whether the MR is still shared.
    NoRow,
}

/// A world to explore.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script {
    pub(super) jobs: &'static [Job],
    /// Whether the last RD of a SEND has C: its RDA is the EA, and there is no CQEP.
    pub(super) fused: bool,
    /// Whether the first copy of a CQEP of a SEND or WRITE of Z wants no EA: that is said by WQEPs
    /// behind it, or asked for by the next copy. The first copy may be lost for good.
    pub(super) quiet: bool,
    /// Chunks of each message. A WRITE has one.
    pub(super) chunks: u8,
    /// How often F sends each frame.
    pub(super) copies: u8,
    /// Whether either side may give a connection up when it pleases: Z aborts, F fails.
    pub(super) gives_up: bool,
    /// Whether F may restart, once, and know nothing.
    pub(super) f_restarts: bool,
    /// The same of Z.
    pub(super) z_restarts: bool,
    /// The connection whose F is hostile, with its real keys.
    pub(super) hostile: Option<u8>,
    /// Whether all connections are of one QP of Z, one after another. Only its nonce tells them
    /// apart, which a guard word does not have.
    pub(super) one_qp: bool,
    /// Whether Z reports its RECVs right after the abort, and waits W for the others alone.
    pub(super) receives_at_once: bool,
    /// Whether frames stay in the network that change nothing any longer.
    pub(super) all_frames: bool,
    /// The mistake; nothing as designed.
    pub(super) mistake: Option<Mistake>,
}

impl Script {
    pub(super) fn job(&self, job: JobId) -> Job {
        self.jobs[usize::from(job)]
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = JobId> + use<> {
        0..self.jobs.len() as JobId
    }

    pub(super) fn ids_of(&self, connection: u8) -> impl Iterator<Item = JobId> + use<'_> {
        self.ids().filter(move |&id| self.job(id).connection == connection)
    }

    /// Jobs of the same queue that come before.
    pub(super) fn earlier(&self, job: JobId) -> impl Iterator<Item = JobId> + use<'_> {
        (0..job).filter(move |&before| self.job(before).same_queue(self.job(job)))
    }

    /// Jobs of the same queue that come after.
    pub(super) fn later(&self, job: JobId) -> impl Iterator<Item = JobId> + use<'_> {
        let same = move |&after: &JobId| self.job(after).same_queue(self.job(job));
        self.ids().filter(move |&after| after > job).filter(same)
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = u8> + use<> {
        0..self.jobs.iter().map(|job| job.connection + 1).max().unwrap_or_default()
    }

    pub(super) fn errs(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    pub(super) fn chunks(&self, job: JobId) -> u8 {
        if self.job(job).kind == Kind::WriteOfF { 1 } else { self.chunks }
    }

    /// The bits of all chunks.
    pub(super) fn all(&self, job: JobId) -> u8 {
        (1 << self.chunks(job)) - 1
    }

    /// Whether an RD of that chunk has C.
    pub(super) fn completes(&self, job: JobId, chunk: u8) -> bool {
        self.fused && self.job(job).kind == Kind::SendOfF && chunk + 1 == self.chunks
    }

    /// Whether Z sends no EA of that copy of a job's CQEP.
    pub(super) fn is_quiet(&self, job: JobId, copy: u8) -> bool {
        self.quiet && self.job(job).is_fetched() && copy == 0
    }

    /// Whether nothing is promised of that job, as its F is hostile.
    pub(super) fn is_hostile(&self, job: JobId) -> bool {
        self.hostile == Some(self.job(job).connection)
    }

    /// With a mistake, and with every frame.
    pub(super) const fn with(self, mistake: Mistake) -> Self {
        Self { all_frames: true, mistake: Some(mistake), ..self }
    }
}
