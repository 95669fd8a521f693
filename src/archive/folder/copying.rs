//! Links and copies a session's files. A link costs nothing and shares what the agent appends. A compressed copy grows by one
//! zstd frame with each appended part.

use std::fs::{self, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::io::Errno;

use super::{SessionFolder, is_damage};
use crate::archive::list::{ArchivedCopy, BUFFER_BYTES, FileStamp, is_transcript};
use crate::files::digest::sha256;
use crate::files::durable;
use crate::files::identity::Hashed;
use crate::files::{has_errno, is_shortage};
use crate::paths::ownership::NO_LINK;
use crate::transcript::TranscriptError;
use crate::transcript::moving::comparison::begins_with_lines_of;
use crate::transcript::parts::{SessionFile, is_lines};

/// The compression level: zstd's own default, about 300 MB/s.
const COMPRESSION_LEVEL: i32 = 3;

/// Facts about the file that is linked or copied: [`ArchivedCopy::folder`] and [`ArchivedCopy::turns`]. Empty unless it is the
/// transcript.
pub(in crate::archive) type SourceFacts<'a> = (&'a str, Option<u64>);

impl SessionFolder<'_> {
    /// Links a file of the agent. Returns whether the file is known to be shorter than before.
    pub(in crate::archive) fn link(
        &mut self,
        part: &SessionFile,
        origin: SourceFacts<'_>,
    ) -> Result<bool, TranscriptError> {
        let stamp = FileStamp::read(&part.path).map_err(TranscriptError::io("look at", &part.path))?;
        let newest = self.list.files.get(&part.name).and_then(|copies| copies.last());
        let newest = newest.cloned();
        match &newest {
            Some(copy) if self.is_link_to(copy, &stamp) || copy.source == stamp => {
                let kept = ArchivedCopy {
                    folder: origin.0.to_owned(),
                    ..copy.clone()
                };
                self.put(&part.name, kept);
                return Ok(copy.is_link() && stamp.bytes < copy.bytes);
            }
            // The agent no longer writes to a file that it compressed.
            Some(copy) if part.is_compressed && !copy.is_link() => return Ok(false),
            Some(_) | None => {}
        }
        if part.is_compressed {
            return self.compress(part, origin);
        }
        self.compress_other_links(part, &stamp)?;
        let file = self.new_file("link");
        match durable::link(&part.path, &self.path.join(&file)) {
            Ok(()) => {
                self.drop_links(&part.name);
                let link = ArchivedCopy {
                    file,
                    bytes: stamp.bytes,
                    source: stamp,
                    folder: origin.0.to_owned(),
                    ..ArchivedCopy::default()
                };
                self.put(&part.name, link);
                Ok(false)
            }
            // It is copied by `compress`, when the session is closed or within a day.
            Err(error) if can_never_link(&error) && newest.is_some() => Ok(false),
            Err(error) if can_never_link(&error) => self.compress(part, origin),
            Err(error) => Err(TranscriptError::io("link", &part.path)(error)),
        }
    }

    /// Copies the new part of a file and deletes its links. Returns true if the file does not continue its newest copy. On an
    /// error, the links remain.
    pub(in crate::archive) fn compress(
        &mut self,
        part: &SessionFile,
        origin: SourceFacts<'_>,
    ) -> Result<bool, TranscriptError> {
        let stamp = FileStamp::read(&part.path).map_err(TranscriptError::io("look at", &part.path))?;
        self.compress_other_links(part, &stamp)?;
        let is_rewritten = self.copy(part, origin)?;
        self.drop_links(&part.name);
        Ok(is_rewritten)
    }

    /// Replaces all links to files for which `is_there` is false with compressed copies. `turns` is [`ArchivedCopy::turns`] of
    /// the transcript.
    pub(in crate::archive) fn compress_links(
        &mut self,
        turns: Option<u64>,
        is_there: impl Fn(&str) -> bool,
    ) -> Result<(), TranscriptError> {
        let links = self.links().filter(|(name, _)| !is_there(name));
        let links: Vec<(String, ArchivedCopy)> = links
            .map(|(name, link)| (name.to_owned(), link.clone()))
            .collect();
        let mut packed = Ok(());
        for (name, link) in links {
            let turns = turns.filter(|_| is_transcript(&name));
            // Continue with the others if one fails.
            packed = packed.and(self.compress_link(&name, &link, turns));
        }
        packed
    }

    /// Compresses links of the same name to other files, which the agent has replaced with this one. A link is not compressed
    /// if this file has its whole content.
    fn compress_other_links(&mut self, part: &SessionFile, stamp: &FileStamp) -> Result<(), TranscriptError> {
        let links = self
            .links()
            .filter(|(name, link)| *name == part.name && !self.is_link_to(link, stamp));
        let links: Vec<ArchivedCopy> = links.map(|(_, link)| link.clone()).collect();
        for link in links {
            if !self.is_continued_by(&link, part)? {
                // The number of turns is unknown: the agent may have replaced the file before the turns were
                // acknowledged.
                self.compress_link(&part.name, &link, None)?;
            }
        }
        Ok(())
    }

    fn compress_link(
        &mut self,
        name: &str,
        link: &ArchivedCopy,
        turns: Option<u64>,
    ) -> Result<(), TranscriptError> {
        if let Some(bytes) = self.usable_bytes(name, link)? {
            let part = SessionFile::plain(&self.path.join(&link.file), name.to_owned(), bytes);
            self.copy(&part, (&link.folder, turns))?;
        }
        self.drop_copies(name, |copy| copy.file == link.file);
        Ok(())
    }

    /// Whether a copy is a link to the file in this state.
    fn is_link_to(&self, copy: &ArchivedCopy, file: &FileStamp) -> bool {
        copy.is_link() && self.stamp(copy).is_some_and(|own| own.is_same_file(file))
    }

    /// Whether a file begins with all lines of a copy. Ignores the folder that the records name, because a move
    /// changes it.
    fn is_continued_by(&self, copy: &ArchivedCopy, part: &SessionFile) -> Result<bool, TranscriptError> {
        let bytes = self.usable_bytes(&part.name, copy)?;
        let Some(bytes) = bytes.filter(|_| is_lines(Path::new(&part.name))) else {
            return Ok(false);
        };
        let ours = self.text(copy, bytes)?;
        let failed = |error| TranscriptError::io("compare", &part.path)(error);
        let theirs = part.open().map_err(failed)?.take(part.bytes);
        match begins_with_lines_of(ours, BufReader::with_capacity(BUFFER_BYTES, theirs)) {
            Err(error) if is_damage(&error) => Ok(false),
            alike => alike.map_err(failed),
        }
    }

    /// Copies the new part of a file. Deletes copies that differ from the beginning of the file only by the folder in their
    /// records. Returns true if the file does not continue its newest copy.
    fn copy(
        &mut self,
        part: &SessionFile,
        (folder, turns): SourceFacts<'_>,
    ) -> Result<bool, TranscriptError> {
        let folder_path = self.path.clone();
        // Disk space is missing where the copy is written, not where it is read.
        let failed = |error| match is_shortage(&error) {
            true => TranscriptError::io("write a backup to", &folder_path)(error),
            false => TranscriptError::io("copy", &part.path)(error),
        };
        let stamp = FileStamp::read(&part.path).map_err(failed)?;
        let copies = self.list.files.get(&part.name).into_iter().flatten();
        let copies: Vec<ArchivedCopy> = copies.filter(|copy| !copy.is_link()).cloned().collect();
        let newest = match copies.last() {
            Some(copy) if self.is_complete(copy).map_err(failed)? => Some(copy),
            _ => None,
        };
        let grown = match newest.filter(|copy| copy.bytes <= part.bytes) {
            Some(copy) => self.extended(copy.clone(), part, stamp).map_err(failed)?,
            None => None,
        };
        if let (Some(copy), Some(grown)) = (newest, grown) {
            let turns = turns.or(copy.turns.filter(|_| grown.bytes == copy.bytes));
            let folder = folder.to_owned();
            self.put(
                &part.name,
                ArchivedCopy {
                    folder,
                    turns,
                    ..grown
                },
            );
            return Ok(false);
        }
        let mut continued = Vec::new();
        for copy in &copies {
            if self.is_continued_by(copy, part)? {
                continued.push(copy.file.clone());
            }
        }
        let is_rewritten = newest.is_some_and(|copy| !continued.contains(&copy.file));
        let new = ArchivedCopy {
            file: self.new_file("zst"),
            sha256: sha256(b""),
            folder: folder.to_owned(),
            turns,
            ..ArchivedCopy::default()
        };
        let path = self.path.join(&new.file);
        let written = self.extended(new, part, stamp).inspect_err(|_| {
            // Ignore errors: the next backup deletes it before it makes new copies.
            let _left = fs::remove_file(&path);
        });
        if let Some(copy) = written.map_err(failed)? {
            self.put(&part.name, copy);
            self.drop_copies(&part.name, |copy| continued.contains(&copy.file));
        }
        Ok(is_rewritten)
    }

    /// Appends to a copy the part of the file that it lacks, as a separate frame, and syncs it. Creates the copy's file if it
    /// has no frame yet. `None` if the file does not begin with the content of the copy.
    fn extended(
        &self,
        copy: ArchivedCopy,
        part: &SessionFile,
        source: FileStamp,
    ) -> io::Result<Option<ArchivedCopy>> {
        if copy.source == source && copy.bytes == part.bytes {
            return Ok(Some(copy));
        }
        let mut text = Hashed::new(part.open()?);
        io::copy(&mut text.by_ref().take(copy.bytes), &mut io::sink())?;
        if text.digest() != copy.sha256 {
            return Ok(None);
        }
        let bytes = part.bytes - copy.bytes;
        let mut grown = ArchivedCopy {
            source,
            bytes: part.bytes,
            ..copy
        };
        if bytes > 0 || grown.packed_bytes.is_none() {
            let path = self.path.join(&grown.file);
            let mut packed = OpenOptions::new()
                .write(true)
                .create_new(grown.packed_bytes.is_none())
                .mode(0o600)
                .custom_flags(NO_LINK)
                .open(&path)?;
            // Remove bytes after the last complete frame, which were appended before a kill.
            packed.set_len(grown.packed_bytes.unwrap_or_default())?;
            packed.seek(SeekFrom::End(0))?;
            let mut encoder =
                zstd::Encoder::new(BufWriter::with_capacity(BUFFER_BYTES, packed), COMPRESSION_LEVEL)?;
            encoder.include_checksum(true)?;
            if io::copy(&mut text.by_ref().take(bytes), &mut encoder)? < bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let packed = encoder.finish()?.into_inner();
            let packed = packed.map_err(io::IntoInnerError::into_error)?;
            durable::sync_file(&packed, &path)?;
            grown.packed_bytes = Some(packed.metadata()?.len());
            grown.sha256 = text.digest();
        }
        Ok(Some(grown))
    }
}

/// Whether the error means that this file can never be linked.
fn can_never_link(error: &io::Error) -> bool {
    let never = [
        Errno::XDEV,
        Errno::PERM,
        Errno::MLINK,
        Errno::NOTSUP,
        Errno::NOSYS,
    ];
    has_errno(error, &never)
}
