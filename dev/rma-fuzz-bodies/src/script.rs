//! Input that is read as a script: octet by octet, with zeros where it has ended.

/// An index that is not the writer's to write: often a little wrong, sometimes anything.
pub(super) fn hostile_index(now: u32, script: &mut Script<'_>) -> u32 {
    match script.number() {
        kind if kind & 1 == 0 => now.wrapping_add_signed((script.number() as i8).into()),
        _ => (script.wide() << 16 | script.wide()) as u32,
    }
}

/// The rest of the input. At its end it reads as zeros.
#[derive(Clone, Copy)]
pub(super) struct Script<'a>(pub(super) &'a [u8]);

impl<'a> Script<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub(super) fn number(&mut self) -> usize {
        self.byte().unwrap_or(0).into()
    }

    pub(super) fn wide(&mut self) -> u64 {
        u64::from(self.byte().unwrap_or(0)) << 8 | u64::from(self.byte().unwrap_or(0))
    }

    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        head
    }
}
