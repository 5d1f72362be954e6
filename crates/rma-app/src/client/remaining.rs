//! Transfers of what another transfer left missing.
//!
//! Such a call has one piece for each [`Missing`] of that transfer, and what it says of itself
//! counts in these. The application counts in all that it has asked for, and whoever is asked next
//! is asked in the same numbers: so whatever such a call says is told in the numbers of the whole.

use rma_core::executor::{CallError, Missing, Outcome, Piece};

/// Whether what is missing by `outcome` lies in `whole`: beyond are others' buffers.
pub(super) fn check_within(outcome: &Outcome, whole: &[Piece<'_>]) -> Result<(), CallError> {
    for &Missing { piece, offset, len, .. } in &outcome.missing {
        let end = offset.checked_add(len);
        let is_in = |it: &Piece<'_>| end.is_some_and(|end| end <= it.len);
        if !whole.get(piece).is_some_and(is_in) {
            return Err(CallError::NotOfThisTransfer { piece, offset, len });
        }
    }
    Ok(())
}

/// Returns the missing pieces of a call for `only`, in the numbers of the whole; in order, as an
/// [`Outcome`] has it.
pub(super) fn missing_in_whole(only: &[Missing], mut all: Vec<Missing>) -> Vec<Missing> {
    for missing in &mut all {
        let part = &only[missing.piece];
        (missing.piece, missing.offset) = (part.piece, part.offset + missing.offset);
    }
    // Parts that touch may have ended alike; and nobody need give them in order.
    Missing::in_order(all)
}

/// Returns the error of a refused call for `only`, with the pieces' numbers in the whole.
pub(super) fn error_in_whole(only: &Outcome, mut error: CallError) -> CallError {
    let in_whole = |piece: &mut usize| *piece = only.missing[*piece].piece;
    match &mut error {
        CallError::EmptyPiece { piece }
        | CallError::RemoteOutOfBounds { piece, .. }
        | CallError::LocalOutOfBounds { piece, .. }
        | CallError::AnotherHost { piece }
        | CallError::PublishElsewhere { piece }
        | CallError::Misaligned { piece, .. }
        | CallError::Submit { piece, .. } => in_whole(piece),
        CallError::Overlap { first, second } => {
            in_whole(first);
            in_whole(second);
        }
        // The others name no piece.
        _ => {}
    }
    error
}

#[cfg(test)]
mod tests {
    use rma_core::op::OpStatus;

    use super::*;

    #[test]
    fn missing_pieces_are_told_in_order_and_joined_where_they_touch() {
        let (no, timeout) = (None, Some(OpStatus::Timeout));
        let missing = |piece, offset, len, tried| Missing { piece, offset, len, tried };
        // Two that touch, as the second was not tried; one of another piece, which comes first.
        let only = [missing(2, 100, 50, timeout), missing(2, 150, 30, no), missing(1, 7, 1000, no)];
        let left = vec![
            missing(0, 10, 40, timeout),
            missing(1, 0, 20, timeout),
            missing(1, 20, 10, no),
            missing(2, 990, 10, timeout),
        ];
        let expected =
            [missing(1, 997, 10, timeout), missing(2, 110, 60, timeout), missing(2, 170, 10, no)];
        assert_eq!(missing_in_whole(&only, left), expected);
    }
}
