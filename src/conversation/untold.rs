//! A copy of a transcript until somebody is told of it.

use std::path::PathBuf;

/// A copy of a transcript that nobody was told of. Dropped before it is taken into use, it is of no use, and goes.
#[derive(Debug)]
pub struct UntoldCopy(Option<PathBuf>);

impl UntoldCopy {
    /// What is at this path.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self(Some(path))
    }

    /// It is somebody's now.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for UntoldCopy {
    fn drop(&mut self) {
        let Some(path) = &self.0 else { return };
        if let Err(error) = std::fs::remove_file(path) {
            tracing::warn!(path = %path.display(), %error, "a copy that is of no use could not be removed");
        }
        // What came along with it, where there was anything.
        let _none = std::fs::remove_dir_all(path.with_extension(""));
    }
}
