//! The world as stateright walks through it: every order of every step of both sides and the
//! network.

use stateright::{Model, Property};

use super::{
    network::{Frame, Network, Piece},
    promises::{self, Seen},
    script::{JobId, Kind, Mistake, SLOTS_MAX, Script},
    stateful::{self, Connection, Stateful},
    stateless::{self, Qp, Stateless, Word},
};

/// Everything at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) z: Stateless,
    pub(super) f: Stateful,
    pub(super) network: Network,
    pub(super) seen: Seen,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A connection is made.
    Connect { connection: u8 },
    /// Z posts a WQE to a slot that is free.
    Post { job: JobId },
    /// A frame arrives, the first time or once more.
    Deliver(Frame),
    /// Z's library gives the WC of a WR that is done.
    Complete { job: JobId },
    /// Z's engine closes a connection's QP word and aborts its guards.
    Abort { connection: u8 },
    /// Z's library reports what failed, W after that.
    Flush { connection: u8 },
    /// It reports RECVs that failed before.
    FlushReceives { connection: u8 },
    /// Z deregisters the MR.
    Deregister,
    /// F sends an RD or GD.
    Send { job: JobId, chunk: u8 },
    /// F sends a CQEP.
    SendCqep { job: JobId },
    /// The network loses a CQEP for good.
    LoseCqep { job: JobId },
    /// F waits until copies of a WRITE are dead, and reports it as OK.
    Outlive { job: JobId },
    /// F gives a connection up.
    GiveUp { connection: u8 },
    /// F waits until a WR's copies are dead, and reports that it failed.
    ReportFailure { job: JobId },
    /// F's process ends and another begins.
    RestartF,
    /// Z's process ends and another begins.
    RestartZ,
    /// A hostile F says that a WQE is complete, or sends data for it.
    Forge { from: u8, job: JobId, data: bool },
    /// Only a mistake: Z closes a guard after it has written the CQE.
    CloseLate { slot: usize },
    /// Only a mistake: Z reads the data of a GDA.
    WriteLate(Frame),
    /// Only a mistake: F completes a RECV after its data has landed.
    CompleteLate { job: JobId },
    /// Only a mistake: Z's filter has no room, and F takes that for an answer.
    Refuse(Piece),
}

impl Model for Script {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            z: Stateless::default(),
            f: Stateful::default(),
            network: Network::default(),
            seen: Seen::default(),
        };
        self.step(&mut state, Action::Connect { connection: 0 });
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let State { z, f, network, .. } = state;
        actions.extend(network.frames().map(Action::Deliver));
        for job in self.ids() {
            self.actions_of_a_job(state, job, actions);
        }
        let gives_up =
            self.gives_up || self.f_restarts || self.z_restarts || self.hostile.is_some();
        for connection in self.connections() {
            if z.may_connect(self, connection) {
                actions.push(Action::Connect { connection });
            }
            if gives_up && z.may_abort(connection) {
                actions.push(Action::Abort { connection });
            }
            if z.may_flush(self, connection) {
                actions.push(Action::Flush { connection });
            }
            if z.may_flush_receives(self, connection) {
                actions.push(Action::FlushReceives { connection });
            }
            if gives_up && f.may_give_up(self, connection) {
                actions.push(Action::GiveUp { connection });
            }
        }
        if self.f_restarts && !f.restarted {
            actions.push(Action::RestartF);
        }
        if self.z_restarts && !z.restarted {
            actions.push(Action::RestartZ);
        }
        actions.extend(z.queued.frames().map(Action::WriteLate));
        let closing = |&slot: &usize| z.guards[slot].is_some_and(|it| it.word == Word::Closing);
        actions.extend((0..SLOTS_MAX).filter(closing).map(|slot| Action::CloseLate { slot }));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        self.step(&mut state, action);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all(self)
    }
}

impl Script {
    fn actions_of_a_job(&self, state: &State, job: JobId, actions: &mut Vec<Action>) {
        let State { z, f, network, .. } = state;
        if z.may_post(self, job) {
            actions.push(Action::Post { job });
        }
        if z.may_complete(self, job) {
            actions.push(Action::Complete { job });
        }
        for chunk in (0..self.chunks(job)).filter(|&chunk| f.may_send(self, job, chunk)) {
            actions.push(Action::Send { job, chunk });
        }
        if f.may_send_cqep(self, job) {
            actions.push(Action::SendCqep { job });
        }
        if self.is_quiet(job, 0) && network.has(Frame::Cqep { job, copy: 0 }) {
            actions.push(Action::LoseCqep { job });
        }
        if f.may_outlive(self, job) {
            actions.push(Action::Outlive { job });
        }
        if f.may_report_failure(self, job) {
            actions.push(Action::ReportFailure { job });
        }
        if stateful::may_complete_late(self, state, job) {
            actions.push(Action::CompleteLate { job });
        }
        let is_write = self.job(job).kind == Kind::WriteOfF;
        if is_write && self.gives_up {
            actions.push(Action::Deregister);
        }
        if is_write && self.errs(Mistake::BusyIsAnAnswer) {
            let copies = (0..self.copies).map(|copy| Piece { job, chunk: 0, copy });
            let sent = copies.filter(|&piece| network.has(Frame::Rd(piece)));
            actions.extend(sent.map(Action::Refuse));
        }
        if let Some(from) = self.hostile {
            actions.push(Action::Forge { from, job, data: false });
            if self.is_hostile(job) {
                actions.push(Action::Forge { from, job, data: true });
            }
        }
    }

    fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::Connect { connection } => {
                state.f.connections[usize::from(connection)] = Connection::Live;
                if self.hostile == Some(connection) {
                    stateful::lose(self, state, connection);
                }
                state.z.qps[usize::from(connection)] = Qp::Open;
            }
            Action::Post { job } => stateless::post(self, state, job),
            Action::Deliver(frame) if frame.is_for_z() => stateless::receive(self, state, frame),
            Action::Deliver(frame) => stateful::receive(self, state, frame),
            Action::Complete { job } => stateless::complete(self, state, job),
            Action::Abort { connection } => stateless::abort(self, state, connection),
            Action::Flush { connection } => stateless::flush(self, state, connection),
            Action::FlushReceives { connection } => {
                stateless::flush_receives(self, state, connection);
            }
            Action::Deregister => state.z.row_gone = true,
            Action::Send { job, chunk } => stateful::send(self, state, job, chunk),
            Action::SendCqep { job } => stateful::send_cqep(self, state, job),
            Action::LoseCqep { job } => state.network.remove(Frame::Cqep { job, copy: 0 }),
            Action::Outlive { job } => stateful::outlive(self, state, job),
            Action::GiveUp { connection } => stateful::give_up(state, connection),
            Action::ReportFailure { job } => stateful::report_failure(self, state, job),
            Action::RestartF => stateful::restart(self, state),
            Action::RestartZ => stateless::restart(self, state),
            Action::Forge { from, job, data } => {
                stateless::receive_forged(self, state, from, (job, data));
            }
            Action::CloseLate { slot } => stateless::close_late(state, slot),
            Action::WriteLate(Frame::Gda(piece)) => {
                stateless::write_gda(self, state, piece, piece.job);
            }
            Action::WriteLate(_) => unreachable!("a queue of GDAs"),
            Action::CompleteLate { job } => stateful::complete_fetched(self, state, job),
            Action::Refuse(piece) => stateless::refuse_write(self, state, piece),
        }
        if !self.all_frames {
            state.network = self.without_dead_frames(state);
        }
    }

    /// Returns the network without frames that change nothing any longer.
    pub(super) fn without_dead_frames(&self, state: &State) -> Network {
        let mut network = state.network;
        self.dead_frames(state).for_each(|frame| network.remove(frame));
        network
    }

    /// Frames that change nothing, whenever they are delivered.
    pub(super) fn dead_frames(&self, state: &State) -> impl Iterator<Item = Frame> {
        let State { z, f, network, .. } = state;
        network.frames().filter(move |&frame| {
            if frame.is_for_z() {
                z.has_no_use_for(self, f, *network, frame)
            } else {
                f.has_no_use_for(self, frame)
            }
        })
    }

    /// Returns `state` after `frame`.
    pub(super) fn after(&self, state: &State, frame: Frame) -> State {
        let mut state = *state;
        self.step(&mut state, Action::Deliver(frame));
        state
    }
}
