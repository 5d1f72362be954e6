//! AES-128-GCM of many frames, by the provider that the processor has.

use super::spec::Measured;
use crate::{crypto, error::PairError, interrupt::Interrupt};

pub(super) fn aead(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let figures = crypto::measure(crypto::ROUNDS, None).figures();
    let measured =
        |crypto::AeadFigure { name, value, detail, .. }| Measured { name, value, detail };
    Ok(figures.into_iter().map(measured).collect())
}
