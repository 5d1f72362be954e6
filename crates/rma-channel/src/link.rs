//! What the channel ends of one thread have in common: an executor, and what became of their calls.

use rma_core::{
    executor::{Call, CallError, CallId, CommandExecutor, OpCall, Outcome},
    portal::CommandPortal,
    time::Instant,
};

/// An executor that many channel ends issue through. Used by one thread at a time, as they are;
/// each call of theirs is given the link that they were made for.
///
/// It keeps what became of a call until its end asks for it, and for no longer than until the
/// executor gives its name to another call. So *every* end is to be polled after each
/// [`Link::poll`], before anything more is sent by any of them: one that is left out may never
/// learn what became of its messages.
#[derive(Debug)]
pub struct Link<P: AsMut<CommandPortal> = CommandPortal> {
    executor: CommandExecutor<P>,
    /// By [`CallId::index`]: how the call ended, and nobody has asked yet.
    ended: Vec<Option<Outcome>>,
}

impl<P: AsMut<CommandPortal>> Link<P> {
    /// A link that issues through `executor`, which nobody else uses.
    #[must_use]
    pub const fn new(executor: CommandExecutor<P>) -> Self {
        Self { executor, ended: Vec::new() }
    }

    /// Takes the completions that there are, and issues what may be issued. All channel
    /// ends are to be polled after it. Returns how much there was to do.
    pub fn poll(&mut self, now: Instant) -> usize {
        let work = self.executor.poll(now);
        while let Some(outcome) = self.executor.poll_outcome() {
            let index = outcome.call.index();
            if index >= self.ended.len() {
                self.ended.resize(index + 1, None);
            }
            self.ended[index] = Some(outcome);
        }
        work
    }

    /// When [`Link::poll`] has something to do even if no completion comes;
    /// [`CommandExecutor::poll_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.executor.poll_timeout()
    }

    /// The executor, to look at.
    #[must_use]
    pub const fn executor(&self) -> &CommandExecutor<P> {
        &self.executor
    }

    pub(crate) fn submit(&mut self, now: Instant, call: &Call<'_>) -> Result<CallId, CallError> {
        self.executor.submit(now, call)
    }

    pub(crate) fn submit_op(
        &mut self,
        now: Instant,
        call: &OpCall<'_>,
    ) -> Result<CallId, CallError> {
        self.executor.submit_op(now, call)
    }

    /// What became of `call`; `None` while it is under way, or if somebody has asked before.
    pub(crate) fn take(&mut self, call: CallId) -> Option<Outcome> {
        let ended = self.ended.get_mut(call.index())?;
        ended.take_if(|outcome| outcome.call == call)
    }
}
