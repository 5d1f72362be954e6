//! Waiting for StaR on the thread that turns an inline engine: more of [`Turning`].

use std::io::{Read, Write};

use rma_star::library::{CqId, Qp, Wc};

use super::{
    set_up::{Part, SetUpError},
    verbs::StarVerbs,
};
use crate::{error::WaitError, inline::Turning};

impl<F: FnMut() -> usize> Turning<'_, F> {
    /// Waits until a completion queue has completions: [`StarVerbs::wait_cq`].
    ///
    /// # Errors
    /// If nothing that completes into the queue is outstanding, or another maker made the portal.
    pub fn wait_cq(
        mut self,
        verbs: &mut StarVerbs,
        cq: CqId,
        wcs: &mut [Wc],
    ) -> Result<usize, WaitError> {
        self.check_verbs(verbs)?;
        verbs.wait_cq_with(cq, wcs, None, Some(&mut self.turn))
    }

    /// Connects a queue pair: [`StarVerbs::connect_over`]. The engine stands still while the stream
    /// is read.
    ///
    /// # Errors
    /// [`SetUpError`].
    pub fn connect_over(
        mut self,
        verbs: &mut StarVerbs,
        qp: Qp,
        stream: &mut (impl Read + Write),
    ) -> Result<(), SetUpError> {
        self.check_verbs(verbs)?;
        verbs.set_up_with(qp, stream, Part::Connects, Some(&mut self.turn))
    }

    /// Takes the connection that the peer makes: [`StarVerbs::accept_over`]. The engine stands
    /// still while the stream is read.
    ///
    /// # Errors
    /// [`SetUpError`].
    pub fn accept_over(
        mut self,
        verbs: &mut StarVerbs,
        qp: Qp,
        stream: &mut (impl Read + Write),
    ) -> Result<(), SetUpError> {
        self.check_verbs(verbs)?;
        verbs.set_up_with(qp, stream, Part::Accepts, Some(&mut self.turn))
    }

    fn check_verbs(&self, verbs: &StarVerbs) -> Result<(), WaitError> {
        if verbs.is_of(self.home) { Ok(()) } else { Err(WaitError::AnotherHost) }
    }
}
