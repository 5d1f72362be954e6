//! The conditions that hold in every state, and the states that must be reached so that this says
//! something.

use stateright::Property;

use super::{
    model::State,
    network::Frame,
    script::{JOBS_MAX, Job, JobId, Kind, Script},
    stateful::Outcome,
    stateless::{Qp, Wc},
};

/// Each is named by what it promises.
pub(super) mod name {
    pub(crate) const S1_ENDS: &str = "S1: every WR ends, with all frames, with some and with none";
    pub(crate) const S1_ONCE: &str = "S1: no WR is told twice how it ended";
    pub(crate) const S1_CALM: &str = "S1: where nobody gives up, all WRs are OK";
    pub(crate) const S2: &str = "S2: nothing of a WR changes anything after it was reported";
    pub(crate) const S3_OK: &str = "S3: a WR that is OK has had its effect, and its RECV is OK";
    pub(crate) const S3_ONCE: &str = "S3: no message gives two RECVs that are OK";
    pub(crate) const S3_WHOLE: &str = "S3: a RECV that is OK has all bytes of its message";
    pub(crate) const S3_ORDER: &str = "S3: messages are told in order";
    pub(crate) const S3_WRITES: &str =
        "S3: WRITEs land in order, and when a SEND completes earlier ones land no more";
    pub(crate) const S5: &str = "S5: Z acts only on what it has opened to this connection";
    pub(crate) const FORGOTTEN: &str = "the model forgets no frame that could change anything";
}

/// The events of both sides, as an omniscient observer sees them. No host knows any of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    /// One bit for each chunk of a job that landed.
    pub(super) landed: [u8; JOBS_MAX],
    /// How many CQEs a job gave at Z.
    pub(super) completed: [u8; JOBS_MAX],
    /// Something of a WR took effect after it was reported.
    pub(super) late: bool,
    /// A WQE was given two CQEs.
    pub(super) twice: bool,
    /// A CQE was given before all data had landed.
    pub(super) hollow: bool,
    /// A WRITE landed after a later one, or after the CQE of a later SEND.
    pub(super) overtaken: bool,
    /// A WC was given after that of a later message.
    pub(super) disorder: bool,
    /// Z acted on what it had not opened.
    pub(super) astray: bool,
}

impl Seen {
    /// Whether Z's application can have seen something of that job.
    pub(super) fn took_effect(&self, script: &Script, job: JobId) -> bool {
        let effect = if script.job(job).is_at_z() { self.completed } else { self.landed };
        effect[usize::from(job)] != 0
    }
}

type Condition = fn(&Script, &State) -> bool;

/// The conditions that hold always.
const ALWAYS: [(&str, Condition); 8] = [
    (name::S1_ONCE, |_, state| !state.seen.twice),
    (name::S2, |_, state| !state.seen.late),
    (name::S3_OK, |script, state| {
        let mut honest = script.ids().filter(|&job| !script.is_hostile(job));
        honest.all(|job| ok_has_effect(script, state, job))
    }),
    (name::S3_ONCE, |script, state| {
        state.seen.completed.iter().all(|&times| times <= 1)
            && script.ids().all(|wqe| received(script, state, wqe).count() <= 1)
    }),
    (name::S3_WHOLE, |_, state| !state.seen.hollow),
    (name::S3_ORDER, |script, state| !state.seen.disorder && is_ascending(script, state)),
    (name::S3_WRITES, |_, state| !state.seen.overtaken),
    (name::S5, |_, state| !state.seen.astray),
];

/// The states that are possible in every script.
const SOMETIMES: [(&str, Condition); 1] =
    [("all WRs of a connection are OK at once", |script, state| {
        script
            .connections()
            .any(|connection| script.ids_of(connection).all(|job| is_ok(script, state, job)))
    })];

/// A state that is also possible if either side gives up work of F.
const SOMETIMES_FAILED: (&str, Condition) =
    ("a WR fails at F after all of its data has landed at Z", |script, state| {
        script.ids().any(|job| {
            let landed = state.seen.landed[usize::from(job)] == script.all(job);
            state.f.outcome(job) == Some(Outcome::Failed) && landed
        })
    });

/// A state that is also possible if either side gives up work of Z, and data and CQE come apart.
const SOMETIMES_HALF_DONE: (&str, Condition) =
    ("a WR is flushed at Z after all of its data has landed", |script, state| {
        script.ids().any(|job| {
            state.z.wcs[usize::from(job)] == Some(Wc::Flushed)
                && state.seen.landed[usize::from(job)] == script.all(job)
        })
    });

/// A state that is also possible if either side gives up work of Z.
const SOMETIMES_FLUSHED: (&str, Condition) =
    ("F has frames under way for a WQE that Z has reported as failed", |_, state| {
        let flushed = |job: JobId| state.z.wcs[usize::from(job)] == Some(Wc::Flushed);
        state.network.frames().any(|frame| frame.is_for_z() && flushed(frame.job()))
    });

/// A state that is also possible if jobs share a slot.
const SOMETIMES_REUSED: (&str, Condition) =
    ("F works on a WQE whose slot has another", |script, state| {
        script.ids().any(|job| {
            let slot = state.z.guards[usize::from(script.job(job).slot)];
            let of_another = slot.is_some_and(|guard| guard.job > job);
            let sent = state.f.copies_sent(job) != [0, 0];
            script.job(job).is_at_z() && of_another && sent && state.f.outcome(job).is_none()
        })
    });

/// A state that is also possible if F sends frames again.
const SOMETIMES_AGAIN: (&str, Condition) = ("two copies of one frame are under way", |_, state| {
    let copies = |copy| {
        state.network.frames().filter_map(move |frame| match frame {
            Frame::Rd(it) | Frame::Gd(it) if it.copy == copy => Some((it.job, it.chunk)),
            _ => None,
        })
    };
    copies(0).any(|piece| copies(1).any(|other| other == piece))
});

/// F's RECVs that are OK with the message of that WQE.
fn received(script: &Script, state: &State, wqe: JobId) -> impl Iterator<Item = JobId> {
    script.ids().filter(move |&job| {
        matches!(script.job(job).kind, Kind::SendOfZ { .. })
            && state.f.outcome(job) == Some(Outcome::Ok)
            && state.f.wqe(job) == Some(wqe)
    })
}

/// Whether what either side was told to be OK has had its effect at the other.
fn ok_has_effect(script: &Script, state: &State, job: JobId) -> bool {
    let at = usize::from(job);
    let landed = state.seen.landed[at] == script.all(job);
    let at_f = state.f.outcome(job) == Some(Outcome::Ok);
    let at_z = state.z.wcs[at] == Some(Wc::Ok);
    match script.job(job).kind {
        Kind::SendOfF => !at_f || landed && state.seen.completed[at] == 1,
        Kind::WriteOfF => !at_f || landed,
        Kind::SendOfZ { .. } => !at_z || landed && received(script, state, job).count() == 1,
        Kind::WriteOfZ => !at_z || landed,
    }
}

/// Whether messages of Z fill F's RECVs in order.
fn is_ascending(script: &Script, state: &State) -> bool {
    script.connections().all(|connection| {
        let ok = |&job: &JobId| {
            script.job(job).is_fetched() && state.f.outcome(job) == Some(Outcome::Ok)
        };
        let messages = script.ids_of(connection).filter(ok).filter_map(|job| state.f.wqe(job));
        messages.is_sorted_by(|before, after| before < after)
    })
}

fn is_ok(script: &Script, state: &State, job: JobId) -> bool {
    let at_f = !script.job(job).is_at_f() || state.f.outcome(job) == Some(Outcome::Ok);
    let at_z = !script.job(job).is_at_z() || state.z.wcs[usize::from(job)] == Some(Wc::Ok);
    at_f && at_z
}

fn has_ended(script: &Script, state: &State, job: JobId) -> bool {
    let at_f = !script.job(job).is_at_f() || state.f.outcome(job).is_some();
    let at_z = !script.job(job).is_at_z() || state.z.wcs[usize::from(job)].is_some();
    state.z.qp(script, job) == Qp::New || at_f && at_z
}

/// All that must be checked of `script`.
///
/// No step undoes another, so every run ends: where nothing is left to happen that changes
/// anything. That every WR has ended there is the bound of S1, in steps.
pub(super) fn all(script: &Script) -> Vec<Property<Script>> {
    let always = |(name, condition)| Property::always(name, condition);
    let sometimes = |(name, condition)| Property::sometimes(name, condition);
    let mut all: Vec<_> = ALWAYS.into_iter().map(always).collect();
    let gives_up =
        script.gives_up || script.f_restarts || script.z_restarts || script.hostile.is_some();
    if gives_up {
        all.push(Property::eventually(name::S1_ENDS, |script: &Script, state: &State| {
            script.ids().all(|job| has_ended(script, state, job))
        }));
    } else {
        all.push(Property::eventually(name::S1_CALM, |script: &Script, state: &State| {
            script.ids().all(|job| is_ok(script, state, job))
        }));
    }
    all.extend(SOMETIMES.into_iter().map(sometimes));
    let has = |is: fn(Job) -> bool| script.jobs.iter().any(|&job| is(job));
    let sends = script.gives_up && has(|job| job.is_at_f() && !job.is_fetched());
    all.extend(sends.then(|| sometimes(SOMETIMES_FAILED)));
    let opens = script.gives_up && has(Job::is_at_z) && !script.all_frames;
    all.extend(opens.then(|| sometimes(SOMETIMES_FLUSHED)));
    all.extend((opens && !script.fused).then(|| sometimes(SOMETIMES_HALF_DONE)));
    let shared = script.ids().any(|job| {
        let job_of = |it| (script.job(it).slot, script.job(it).is_at_z());
        (0..job).any(|other| job_of(other) == job_of(job) && script.job(job).is_at_z())
    });
    all.extend((shared && script.hostile.is_none()).then(|| sometimes(SOMETIMES_REUSED)));
    all.extend((script.copies > 1).then(|| sometimes(SOMETIMES_AGAIN)));
    if script.all_frames && script.mistake.is_none() {
        all.push(Property::always(name::FORGOTTEN, |script: &Script, state: &State| {
            script.dead_frames(state).all(|frame| {
                let mut after = script.after(state, frame);
                after.network = script.without_dead_frames(&after);
                let mut before = *state;
                before.network = script.without_dead_frames(state);
                after == before
            })
        }));
    }
    all
}
