//! The work of a key service in a second.

use rma_bench::{error::PairError, interrupt::Interrupt};

use super::spec::Measured;
use crate::key_service::{self, CLIENTS, KeyRates};

/// Rounds of half a second. An odd number has a middle one.
const ROUNDS: usize = 5;

pub(super) fn rates(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let KeyRates { grants, handshakes } = key_service::measure(ROUNDS);
    let common = format!(
        "{CLIENTS} clients over TLS 1.3 on loopback, the service's thread on one core, theirs on another; a policy is asked and \
         the audit log written; medians of {ROUNDS} rounds"
    );
    Ok(vec![
        Measured::new(
            grants,
            format!("grants of one region a request, over connections that stay; {common}"),
        ),
        Measured::new(
            handshakes,
            format!("full handshakes, certificates at both ends, and one grant each; {common}"),
        ),
    ])
}
