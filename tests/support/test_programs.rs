//! Where the helper programs of `tests/support/programs` are. They are an example of this package, so that
//! they are not installed.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_BIN_EXE_sessiond"))
        .parent()
        .expect("a folder");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    // `cargo test` alone has built them; `cargo test --test integration` has not.
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--locked",
            "--example",
            "test-programs",
            "--profile",
            profile,
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo runs");
    assert!(built.success(), "the helper programs cannot be built");
    folder.join("examples/test-programs")
});

/// The program; its first argument says what it is to be.
pub(crate) fn path() -> &'static Path {
    &PROGRAMS
}

/// Makes a data folder with conversations of these ids in this folder. All of them hold this upstream id, if
/// there is one.
pub(crate) fn fill_store(data: &Path, cwd: &str, shared: Option<&str>, ids: &[impl AsRef<str>]) {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data)
        .expect("a folder");
    let mut program = Command::new(path());
    program
        .arg("store-fill")
        .arg(data)
        .args([cwd, shared.unwrap_or_default()])
        .args(ids.iter().map(AsRef::as_ref));
    assert!(program.status().expect("the program runs").success());
}
