//! AES-128-GCM of many frames, by the provider that the processor has.

use rma_bench::{error::PairError, interrupt::Interrupt};

use super::spec::Measured;
use crate::crypto;

pub(super) fn aead(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    Ok(measured(crypto::measure(crypto::ROUNDS, None).figures()))
}

/// Nothing without the feature `peers`.
pub(super) fn over_ring(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    Ok(measured(crypto::over_ring()))
}

fn measured(figures: Vec<crypto::AeadFigure>) -> Vec<Measured> {
    figures.into_iter().map(|figure| Measured::new(figure.value, figure.detail)).collect()
}
