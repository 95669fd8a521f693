//! A compressed rollout that can be read at any offset, in bounded memory.
//!
//! Compressed data can only be decoded from its beginning. So the last [`WINDOW_BYTES`] of decoded text are kept: a
//! reader that goes forwards decodes everything once, and one that goes backwards restarts once for each half of a
//! window. Long pages are therefore read forwards. Pure over any source that can be rewound.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use zstd::stream::read::Decoder;

/// How much of the decoded text is kept: a page of history is usually within it.
pub const WINDOW_BYTES: usize = 8 * 1024 * 1024;

/// The largest distance over which a compressed file may refer to earlier text, as a power of two: 32 MiB, which is the
/// memory that decoding takes. All ordinary compression levels need less.
const DISTANCE_LOG: u32 = 25;

/// How much is decoded at a time, in bytes.
const STEP_BYTES: usize = 128 * 1024;

/// The text of a compressed source, with a read position.
pub struct DecompressedReader<R: Read + Seek> {
    /// `None` only while it is restarted.
    decoder: Option<Decoder<'static, BufReader<R>>>,
    window: Vec<u8>,
    /// The offset of the window's first byte.
    start: u64,
    /// The read position.
    position: u64,
    window_bytes: usize,
    ended: bool,
}

impl<R: Read + Seek> std::fmt::Debug for DecompressedReader<R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut told = formatter.debug_struct("Unpacked");
        told.field("position", &self.position).finish_non_exhaustive()
    }
}

impl<R: Read + Seek> DecompressedReader<R> {
    /// The text of `source`, at its beginning.
    ///
    /// # Errors
    /// If the decoder cannot be created.
    pub fn new(source: R) -> io::Result<Self> {
        Self::with_window(source, WINDOW_BYTES)
    }

    /// As [`DecompressedReader::new`], for reading once from the beginning to the end. Keeps only a small window.
    ///
    /// # Errors
    /// As [`DecompressedReader::new`].
    pub fn sequential(source: R) -> io::Result<Self> {
        Self::with_window(source, STEP_BYTES)
    }

    fn with_window(source: R, window_bytes: usize) -> io::Result<Self> {
        Ok(Self {
            decoder: Some(bounded_decoder(BufReader::new(source))?),
            window: Vec::new(),
            start: 0,
            position: 0,
            window_bytes,
            ended: false,
        })
    }

    fn end(&self) -> u64 {
        self.start + self.window.len() as u64
    }

    fn restart(&mut self) -> io::Result<()> {
        let decoder = self.decoder.take().ok_or_else(truncated_error)?;
        let mut source = decoder.finish().into_inner();
        source.seek(SeekFrom::Start(0))?;
        self.decoder = Some(bounded_decoder(BufReader::new(source))?);
        self.window.clear();
        self.start = 0;
        self.ended = false;
        Ok(())
    }

    /// Decodes one more step, and drops the text that no longer fits into the window.
    fn decode(&mut self) -> io::Result<()> {
        if self.window.len() + STEP_BYTES > self.window_bytes.max(STEP_BYTES) {
            // Drop half of the window at a time, so that bytes are not moved in each step.
            let kept = (self.window_bytes / 2).min(self.window.len());
            let dropped = self.window.len() - kept;
            self.window.drain(..dropped);
            self.start += dropped as u64;
        }
        let filled = self.window.len();
        self.window.resize(filled + STEP_BYTES, 0);
        let decoder = self.decoder.as_mut().ok_or_else(truncated_error)?;
        let read = loop {
            match decoder.read(&mut self.window[filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.window.truncate(filled + *read.as_ref().unwrap_or(&0));
        self.ended = read.map_err(explain_decoder_error)? == 0;
        Ok(())
    }
}

/// Creates a decoder with bounded memory.
///
/// # Errors
/// If the decoder cannot be created.
fn bounded_decoder<R: BufRead>(source: R) -> io::Result<Decoder<'static, R>> {
    let mut decoder = Decoder::with_buffer(source)?;
    decoder.window_log_max(DISTANCE_LOG)?;
    Ok(decoder)
}

/// Adds advice to a decoder's error that is unclear on its own.
fn explain_decoder_error(error: io::Error) -> io::Error {
    if !error.to_string().contains("too much memory") {
        return error;
    }
    io::Error::other(format!(
        "it is compressed in a way that takes more than {} MiB of memory to read; decompress it (zstd -d --long=31)",
        (1_u64 << DISTANCE_LOG) >> 20
    ))
}

fn truncated_error() -> io::Error {
    io::Error::other("the compressed file could not be read again from its beginning")
}

impl<R: Read + Seek> BufRead for DecompressedReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.position < self.start {
            self.restart()?;
        }
        while self.position >= self.end() && !self.ended {
            self.decode()?;
        }
        let place = usize::try_from(self.position - self.start).unwrap_or(usize::MAX);
        Ok(self.window.get(place..).unwrap_or_default())
    }

    fn consume(&mut self, amount: usize) {
        self.position += amount as u64;
    }
}

impl<R: Read + Seek> Read for DecompressedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let taken = available.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&available[..taken]);
        self.consume(taken);
        Ok(taken)
    }
}

impl<R: Read + Seek> Seek for DecompressedReader<R> {
    /// Sets the read position. The text there is decoded when it is read. Positions relative to the end are not supported,
    /// because the end is unknown until it is reached.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(_) => None,
        };
        self.position = position.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "compressed text is found from its beginning on",
            )
        })?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn text() -> Vec<u8> {
        (0..1_000_000_u32)
            .flat_map(|number| (number / 3).to_le_bytes())
            .collect()
    }

    #[test]
    fn every_place_can_be_read_in_any_order_within_a_small_window() {
        let text = text();
        let packed = zstd::encode_all(&text[..], 1).expect("packed");
        let mut unpacked =
            DecompressedReader::with_window(Cursor::new(packed), 256 * 1024).expect("a decoder");
        for place in [
            0_usize, 3_999_990, 5, 2_000_000, 1_999_000, 1_999_001, 0, 4_000_000, 9_000_000,
        ] {
            unpacked.seek(SeekFrom::Start(place as u64)).expect("a place");
            let mut read = Vec::new();
            unpacked.by_ref().take(40).read_to_end(&mut read).expect("text");
            let expected = text.get(place..).unwrap_or_default();
            assert_eq!(read, expected[..expected.len().min(40)], "{place}");
            assert!(unpacked.window.capacity() <= 1024 * 1024, "bounded");
        }
    }

    #[test]
    fn what_would_take_much_memory_is_refused_with_what_to_do() {
        let packed = |distance_log| {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
            encoder.window_log(distance_log).expect("a distance");
            io::Write::write_all(&mut encoder, b"some text").expect("packed");
            DecompressedReader::new(Cursor::new(encoder.finish().expect("packed"))).expect("a decoder")
        };
        let text = io::read_to_string(packed(DISTANCE_LOG)).expect("text");
        assert_eq!(text, "some text");
        let error = io::read_to_string(packed(DISTANCE_LOG + 1)).expect_err("too far");
        let words = error.to_string();
        assert!(words.contains("32 MiB") && words.contains("zstd -d"), "{words}");
    }

    #[test]
    fn what_breaks_off_is_an_error_and_not_an_end() {
        let packed = zstd::encode_all(&text()[..], 1).expect("packed");
        for bytes in [&packed[..packed.len() / 2], b"no such frame", &packed[..3]] {
            let mut unpacked = DecompressedReader::new(Cursor::new(bytes.to_vec())).expect("a decoder");
            assert!(io::copy(&mut unpacked, &mut io::sink()).is_err());
        }
    }
}
