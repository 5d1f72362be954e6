//! The place of a rule, as people find it in their file.

use core::fmt;

/// The two kinds of rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// It gives something: `[[allow]]`.
    Allow,
    /// It ends an identity or a certificate: `[[refuse]]`.
    Refuse,
}

/// The place of a rule in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The kind of rule.
    pub kind: RuleKind,
    /// Its number among those of its kind, from 1.
    pub number: usize,
    /// The line that it begins in, from 1.
    pub line: usize,
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Refuse => "refuse",
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (line {})", self.kind, self.number, self.line)
    }
}
