//! DER, as far as certificates need it: elements, one after the other.
//!
//! It goes forward only, never recurses, and takes no length but in its shortest form.

/// The reason why octets are not the expected DER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DerError {
    /// The octets end within an element.
    #[error("it ends where {expected} should be")]
    Truncated {
        /// The expected item.
        expected: &'static str,
    },
    /// The element is another one.
    #[error("an element of type {found:#04x} is where {expected} should be")]
    Type {
        /// The type that is there.
        found: u8,
        /// The expected item.
        expected: &'static str,
    },
    /// The contents of the element mean nothing.
    #[error("{expected} has contents that mean nothing")]
    Contents {
        /// The expected content.
        expected: &'static str,
    },
}

/// Elements that have not been read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Der<'a>(pub(super) &'a [u8]);

impl<'a> Der<'a> {
    pub(super) const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The next element: its type and its contents.
    pub(super) fn element(&mut self, expected: &'static str) -> Result<(u8, &'a [u8]), DerError> {
        let cut = DerError::Truncated { expected };
        let (&tag, rest) = self.0.split_first().ok_or(cut)?;
        let (&first, rest) = rest.split_first().ok_or(cut)?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x83 => {
                let (octets, rest) = rest.split_at_checked(usize::from(first & 0x7f)).ok_or(cut)?;
                let len = octets.iter().fold(0, |len, &octet| len << 8 | usize::from(octet));
                if octets[0] == 0 || len < 0x80 {
                    return Err(DerError::Contents { expected });
                }
                (len, rest)
            }
            _ => return Err(DerError::Contents { expected }),
        };
        let (contents, rest) = rest.split_at_checked(len).ok_or(cut)?;
        self.0 = rest;
        Ok((tag, contents))
    }

    /// The contents of the next element, which is of type `tag`.
    pub(super) fn expect(&mut self, tag: u8, expected: &'static str) -> Result<&'a [u8], DerError> {
        match self.element(expected)? {
            (found, contents) if found == tag => Ok(contents),
            (found, _) => Err(DerError::Type { found, expected }),
        }
    }

    /// The same, or `None` if an element of another type is next, or none.
    pub(super) fn optional(
        &mut self,
        tag: u8,
        expected: &'static str,
    ) -> Result<Option<&'a [u8]>, DerError> {
        if self.0.first() == Some(&tag) { self.expect(tag, expected).map(Some) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_in_their_shortest_form_and_in_no_other() {
        let long = [&[4, 0x81, 0x80][..], &[7; 128]].concat();
        let mut both = Der(&long);
        assert_eq!(both.expect(4, "octets").map(<[u8]>::len), Ok(128));
        assert!(both.is_empty());
        let truncated = Err(DerError::Truncated { expected: "octets" });
        for cut in 0..long.len() {
            assert_eq!(Der(&long[..cut]).element("octets"), truncated, "{cut}");
        }
        for bad in [&[4, 0x81, 0x7f][..], &[4, 0x82, 0, 0x80], &[4, 0x80], &[4, 0x84, 1, 1, 1, 1]] {
            assert!(Der(bad).element("octets").is_err(), "{bad:?}");
        }
        let found = Der(&[2, 1, 0]).expect(4, "octets");
        assert_eq!(found, Err(DerError::Type { found: 2, expected: "octets" }));
        assert_eq!(Der(&[2, 1, 0]).optional(4, "octets"), Ok(None));
    }
}
