import java.nio.file.*;
import java.util.stream.IntStream;

public class Files {
    public static void main(String[] arguments) throws Exception {
        IntStream.range(0, 400).parallel().forEach(n -> {
            try {
                Path made = Path.of("j" + n + ".tmp");
                java.nio.file.Files.writeString(made, "" + n);
                java.nio.file.Files.move(made, Path.of("j" + n), StandardCopyOption.ATOMIC_MOVE);
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        });
        Process child = new ProcessBuilder("sh", "-c", "ls j* | wc -l").redirectOutput(ProcessBuilder.Redirect.INHERIT).start();
        System.exit(child.waitFor());
    }
}
