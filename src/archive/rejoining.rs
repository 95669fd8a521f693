//! Joins the parts of a transcript that was deleted or truncated while its agent was writing. A copy has the beginning, and the
//! transcript or a later copy has the rest.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use super::Archive;
use super::folder::SessionFolder;
use super::list::{ArchivedCopy, BUFFER_BYTES};
use super::{MissingTurns, SessionKey};
use crate::files::set_aside::{Unreadable, set_aside};
use crate::transcript::TranscriptError;
use crate::transcript::copy::rename_if_free;
use crate::transcript::dialect::{Continuation, Dialect};
use crate::transcript::moving::open_files;
use crate::transcript::parts::open_text;

/// A copy and the text that continues it.
pub(super) struct RejoinedCopy {
    /// The copy with the beginning.
    pub(super) copy: ArchivedCopy,
    /// How many bytes of its text are valid.
    pub(super) bytes: u64,
    source: ContinuationSource,
    continuation: Continuation,
}

/// The source of the rest of a transcript.
#[derive(Clone)]
enum ContinuationSource {
    /// The agent's file, and its length in bytes when it was read.
    Transcript(PathBuf, u64),
    /// A later copy, and how many bytes of its text are valid.
    Copy(ArchivedCopy, u64),
}

impl Archive {
    /// Checks whether a transcript has lost records that it continues and that a copy has. If so, returns when the source of
    /// that copy was last written to, in milliseconds since the epoch.
    ///
    /// # Errors
    /// As [`Archive::pack_links`].
    pub fn lost_part(
        &self,
        dialect: &dyn Dialect,
        key: &SessionKey,
        transcript: &Path,
    ) -> Result<Option<i64>, TranscriptError> {
        let folder = self.open(key)?;
        let rejoin_result = folder.map(|folder| folder.rejoin(dialect, Some(transcript)));
        let rejoin_result = rejoin_result.transpose()?.flatten();
        Ok(rejoin_result.map(|rejoined| rejoined.copy.source.written_ms()))
    }
}

impl SessionFolder<'_> {
    /// Finds the copy that has the records lost by the transcript or, without a transcript, by the newest copies. `None` if no
    /// copy has lost records.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn rejoin(
        &self,
        dialect: &dyn Dialect,
        transcript: Option<&Path>,
    ) -> Result<Option<RejoinedCopy>, TranscriptError> {
        let copies = self.usable_transcripts()?;
        let sources = match transcript {
            Some(path) => {
                let bytes = path
                    .metadata()
                    .map_err(TranscriptError::io("look at", path))?
                    .len();
                vec![ContinuationSource::Transcript(path.to_owned(), bytes)]
            }
            None if copies.len() < 2 => return Ok(None),
            None => {
                let newest_first = copies.iter().rev();
                newest_first
                    .map(|(copy, bytes)| ContinuationSource::Copy((*copy).clone(), *bytes))
                    .collect()
            }
        };
        let mut best: Option<RejoinedCopy> = None;
        for rest in sources {
            for (copy, bytes) in &copies {
                if matches!(&rest, ContinuationSource::Copy(other, _) if other == *copy) {
                    continue;
                }
                let texts = (self.text(copy, *bytes)?, self.continuation_text(&rest)?);
                let (mut copy_text, mut text) = texts;
                let compared = dialect.continuation(&mut copy_text, &mut text);
                let compared = compared.map_err(TranscriptError::io("compare copies in", &self.path))?;
                if let Some(continuation) = compared {
                    let is_complete = continuation.is_complete;
                    best = Some(RejoinedCopy {
                        copy: (*copy).clone(),
                        bytes: *bytes,
                        source: rest.clone(),
                        continuation,
                    });
                    if is_complete {
                        return Ok(best);
                    }
                }
            }
        }
        Ok(best)
    }

    fn continuation_text(&self, rest: &ContinuationSource) -> Result<Box<dyn BufRead>, TranscriptError> {
        Ok(match rest {
            ContinuationSource::Transcript(path, bytes) => {
                let text = open_text(path).map_err(TranscriptError::io("read", path))?;
                Box::new(BufReader::with_capacity(BUFFER_BYTES, text.take(*bytes)))
            }
            ContinuationSource::Copy(copy, bytes) => Box::new(self.text(copy, *bytes)?),
        })
    }
}

impl RejoinedCopy {
    /// Returns how many acknowledged turns the joined text lacks.
    pub(super) fn missing_turns(&self, acknowledged: u64) -> MissingTurns {
        let turns = match &self.source {
            _ if !self.continuation.is_complete => None,
            // It has everything that the agent appended.
            ContinuationSource::Transcript(..) => Some(acknowledged),
            ContinuationSource::Copy(copy, _) if copy.is_link() => Some(acknowledged),
            ContinuationSource::Copy(copy, _) => copy.turns,
        };
        turns.map_or(MissingTurns::Unknown, |turns| {
            MissingTurns::Known(acknowledged.saturating_sub(turns))
        })
    }

    /// Writes the part that the rest adds to the copy. The caller has already written the copy, which ends with a newline or
    /// not.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn write_continuation(
        &self,
        folder: &SessionFolder<'_>,
        ends_with_newline: bool,
        output: &mut dyn Write,
    ) -> Result<(), TranscriptError> {
        let mut text = folder.continuation_text(&self.source)?;
        let mut write = || -> io::Result<()> {
            if !ends_with_newline {
                output.write_all(b"\n")?;
            }
            let mut at = 0;
            for part in &self.continuation.added {
                io::copy(&mut text.by_ref().take(part.start - at), &mut io::sink())?;
                let length = part.end - part.start;
                if io::copy(&mut text.by_ref().take(length), output)? < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                at = part.end;
            }
            Ok(())
        };
        write().map_err(TranscriptError::io("join copies in", &folder.path))
    }

    /// Returns a text that changes whenever the rest would be a different one.
    pub(super) fn state(&self) -> String {
        match &self.source {
            ContinuationSource::Transcript(path, bytes) => format!("{} {bytes}", path.display()),
            ContinuationSource::Copy(copy, bytes) => format!("{} {bytes}", copy.file),
        }
    }

    /// Whether the rest is the agent's transcript.
    pub(super) fn continues_with_transcript(&self) -> bool {
        matches!(self.source, ContinuationSource::Transcript(..))
    }

    /// Whether the rest is the transcript at this path.
    pub(super) fn continues_with(&self, transcript: &Path) -> bool {
        matches!(&self.source, ContinuationSource::Transcript(path, _) if path == transcript)
    }

    /// Sets the transcript aside, unless an agent has written to it since.
    ///
    /// # Errors
    /// [`TranscriptError::InUse`] if another process holds it open, [`TranscriptError::AlreadyExists`] if it has grown,
    /// [`TranscriptError::Io`] otherwise.
    pub(super) fn set_aside(&self, transcript: &Path) -> Result<(), TranscriptError> {
        let ContinuationSource::Transcript(_, bytes) = &self.source else {
            return Ok(());
        };
        let why = "its beginning is missing; a copy with all of it takes its place";
        set_transcript_aside(transcript, why, |aside| {
            let found = aside.metadata().map_err(TranscriptError::io("look at", aside))?;
            Ok(found.len() == *bytes)
        })
    }
}

/// Sets a transcript aside, unless an agent has written to it, so that it is not `as_found` any more.
///
/// # Errors
/// [`TranscriptError::InUse`] if another process holds it open, [`TranscriptError::AlreadyExists`] if it has changed,
/// [`TranscriptError::Io`] otherwise.
pub(super) fn set_transcript_aside(
    path: &Path,
    why: &str,
    as_found: impl Fn(&Path) -> Result<bool, TranscriptError>,
) -> Result<(), TranscriptError> {
    let transcript = path.to_owned();
    open_files::check_not_open(std::slice::from_ref(&transcript))?;
    if !as_found(path)? {
        return Err(TranscriptError::AlreadyExists { path: transcript });
    }
    let aside = set_aside(path, &Unreadable::Damaged(why.to_owned()));
    let aside = aside.map_err(TranscriptError::io("set aside", path))?;
    // The agent may have written to it until it was renamed.
    match as_found(&aside) {
        Ok(true) => Ok(()),
        found => {
            rename_if_free(&aside, path)?;
            found?;
            Err(TranscriptError::AlreadyExists { path: transcript })
        }
    }
}
